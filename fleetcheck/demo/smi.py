"""Stand-ins for nvidia-smi: sh scripts that answer, refuse or hang as the real one does.

In: what the GPUs are like. Out: the text of a script. Exit codes, streams and messages are the real tool's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DRIVER = "580.95.05"
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {nvml}\n"


@dataclass(frozen=True, slots=True)
class Model:
    """A GPU product: its name, PCI device id (``0x2bb5``), compute capability, and memory in MiB."""

    name: str
    device: str
    compute_capability: str
    memory: int


RTX_PRO_6000 = Model("NVIDIA RTX PRO 6000 Blackwell Server Edition", "0x2bb5", "12.0", 97887)
H200 = Model("NVIDIA H200", "0x2335", "9.0", 143771)


def row(model: Model, number: int, driver: str = DRIVER) -> dict[str, str]:
    """Return what nvidia-smi says of one GPU without units, by field name."""
    return {
        "index": str(number),
        "uuid": f"GPU-00000000-0000-4000-8000-{number + 1:012d}",
        "serial": f"17604250000{number:02d}",
        "pci.bus_id": f"00000000:{0x10 + number:02X}:00.0",
        "pci.device_id": f"0x{model.device[2:].upper()}10DE",
        "pci.sub_device_id": "0x204B10DE",
        "name": model.name,
        "gpu_name": model.name,
        "compute_cap": model.compute_capability,
        "driver_version": driver,
        "vbios_version": "98.02.8D.00.01",
        "memory.total": str(model.memory),
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "mig.mode.current": "Disabled",
        "mig.mode.pending": "Disabled",
        "ecc.mode.current": "Enabled",
        "ecc.mode.pending": "Enabled",
        "ecc.errors.uncorrected.volatile.total": "0",
        "retired_pages.pending": "[N/A]",
        "pcie.link.gen.current": "1",
        "pcie.link.gen.max": "5",
        "pcie.link.width.current": "16",
        "pcie.link.width.max": "16",
        "pstate": "P8",
        "utilization.gpu": "0",
        "temperature.gpu": "31",
        "power.limit": "600.00",
        "power.max_limit": "600.00",
        "clocks_throttle_reasons.active": "0x0000000000000001",
        "remapped_rows.pending": "No",
        "remapped_rows.failure": "No",
        "gpu_recovery_action": "None",
    }


def matrix(numbers: Sequence[int], near: str, far: str, end: str = "") -> str:
    """Return what ``topo`` prints of some GPUs: ``near`` within each four of them, ``far`` between."""
    lines = ["\t" + "\t".join(f"GPU{number}" for number in numbers) + end]
    for one in numbers:
        cells = (" X " if one == other else near if one // 4 == other // 4 else far for other in numbers)
        lines.append(f"GPU{one}\t" + "\t".join(cells))
    return "\n".join(lines) + "\n"


def answering(rows: Sequence[Mapping[str, str]], driver: str = DRIVER) -> str:
    """Return a script that answers ``--query-gpu`` for ``rows``, which all have the same fields.

    An unknown field ends with status 2 and its name on stdout, ``noheader`` is obeyed, ``--version`` tells
    the versions, ``topo`` two groups of four GPUs with peer access, and no process runs on them. Without rows it
    finds no device.
    """
    if not rows:
        return failing(6, "No devices were found\n")
    cases = (
        f"        {number}:{field}) value={shlex.quote(value)} ;;"
        for number, fields in enumerate(rows)
        for field, value in fields.items()
    )
    return _ANSWERING.format(
        cases="\n".join(cases),
        known="|".join(rows[0]),
        numbers=" ".join(str(number) for number in range(len(rows))),
        topology=shlex.quote(matrix([int(row["index"]) for row in rows], "NODE", "SYS", "\tCPU Affinity")),
        peers=shlex.quote(matrix([int(row["index"]) for row in rows], "OK", "OK")),
        driver=shlex.quote(driver),
        nvml=shlex.quote(".".join(driver.split(".")[:2])),
    )


def failing(rc: int, stdout: str) -> str:
    """Return a script that says ``stdout`` and ends with ``rc``, whatever it is asked."""
    return f"#!/bin/sh\nprintf %s {shlex.quote(stdout)}\nexit {rc}\n"


def hanging() -> str:
    """Return a script that never answers and heeds no polite signal.

    It ends when it is killed, or when its own file is gone, so that no host's end leaves it behind.
    """
    return "#!/bin/sh\ntrap '' TERM HUP INT\nwhile [ -e \"$0\" ]; do sleep 0.2; done\n"


_ANSWERING = """\
#!/bin/sh
fields=
header=yes
for argument in "$@"; do
    case $argument in
    --version)
        printf 'NVIDIA-SMI version  : %s\\nNVML version        : %s\\n' {driver} {nvml}
        printf 'DRIVER version      : %s\\nCUDA Version        : 13.0\\n' {driver}
        exit 0 ;;
    topo) [ "$2" = -m ] && printf %s {topology} || printf %s {peers}
        exit 0 ;;
    --query-compute-apps=*) exit 0 ;;
    --query-gpu=*) fields=${{argument#--query-gpu=}} ;;
    --format=*noheader*) header=no ;;
    --format=*) ;;
    *) echo "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."; exit 1 ;;
    esac
done
[ -n "$fields" ] || {{ echo "Invalid combination of input arguments."; exit 1; }}
IFS=,
for field in $fields; do
    case $field in
    {known}) ;;
    *) printf 'Field "%s" is not a valid field to query.\\n\\n' "$field"; exit 2 ;;
    esac
done
if [ $header = yes ]; then
    line=
    for field in $fields; do line="$line${{line:+, }}$field"; done
    echo "$line"
fi
IFS=' '
for number in {numbers}; do
    line=
    first=yes
    IFS=,
    for field in $fields; do
        case $number:$field in
{cases}
        esac
        if [ $first = yes ]; then line=$value; first=no; else line="$line, $value"; fi
    done
    echo "$line"
    IFS=' '
done
"""
