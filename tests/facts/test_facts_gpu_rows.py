"""Whatever stands between the rows, exactly the rows that are there are found, each under its own number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetcheck.facts import nvidia_smi, smi_messages, smi_rows

FIELDS = ["index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version", "compute_cap"]
DIAGNOSTICS = (
    "Unable to determine the device handle for GPU3: 0000:0B:00.0: Unknown Error",
    "Unable to determine the device handle for gpu 0000:18:00.0: GPU is lost.",
    "WARNING: infoROM is corrupted at gpu 0000:85:00.0",
    "Failed to initialize NVML: Unknown Error",
    "Failed to properly shut down NVML: GPU access blocked by the operating system",
    "Mismatch in versions between nvidia-smi and NVML. Are you sure you are using the right one?",
    'Field "compute_cap" is not a valid field to query.',
    "No devices were found",
    "*** authorised use only, violators, will, be, prosecuted, to, the ***",
    "0, 1, 2, 3, 4, 5, 6",
    "GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-4000-8000-000000000001)",
    "+-----------------------------------------+------------------------+----------------------+",
    "|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |",
    "  MIG 1g.18gb     Device  0: (UUID: MIG-00000000-0000-4000-8000-000000000011)",
    "==============NVSMI LOG==============",
    "GPU 00000000:00:06.0",
    "    GPU UUID                  : GPU-00000000-0000-4000-8000-000000000077",
    '<?xml version="1.0" ?>',
    '<gpu id="00000000:00:06.0">',
    "<total>GPU is lost</total>",
    "</nvidia_smi_log>",
)
NAMES = ("NVIDIA H200", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "[Unknown Error]")
TOKENS = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "", "97887", "97887 MiB")
NOISE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=60).map(str.strip)


@st.composite
def rows(draw: st.DrawFn) -> str:
    number = draw(st.integers(0, 63))
    name = draw(
        st.sampled_from(["NVIDIA H200", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "[Unknown Error]"])
    )
    memory, capability = draw(st.sampled_from(TOKENS)), draw(st.sampled_from(["12.0", "9.0", "[N/A]"]))
    uuid, bus = f"GPU-00000000-0000-4000-8000-{number + 1:012d}", f"00000000:{number:02X}:00.0"
    return ", ".join([str(number), uuid, bus, name, memory, "580.95.05", capability])


def is_noise(line: str) -> bool:
    return smi_rows.row(FIELDS, line) is None


PIECES = st.lists(
    st.one_of(
        st.tuples(st.just("row"), rows()),
        st.tuples(st.just("noise"), st.sampled_from(DIAGNOSTICS)),
        st.tuples(st.just("noise"), NOISE.filter(is_noise)),
        st.tuples(st.just("noise"), st.sampled_from(["", " ", "\t"])),
    ),
    max_size=40,
)


@given(
    pieces=PIECES,
    errors=st.lists(st.sampled_from(DIAGNOSTICS), max_size=3),
    end=st.sampled_from(["\n", "\r\n"]),
    colour=st.booleans(),
    rc=st.sampled_from([0, 14, 15, 255]),
)
def test_exactly_the_rows_are_found(
    pieces: list[tuple[str, str]], errors: list[str], end: str, colour: bool, rc: int
) -> None:
    lines = [f"\x1b[4m{line}\x1b[0m" if colour else line for _, line in pieces]
    call = {"rc": rc, "stdout": end.join(lines) + end, "stderr": end.join(errors)}
    part = {"path": "/usr/bin/nvidia-smi", "query": {"fields": FIELDS, "call": call}}
    listing = nvidia_smi.read(part)
    wanted = list(dict.fromkeys(int(line.split(",")[0]) for kind, line in pieces if kind == "row"))
    assert [found.index for found in listing.rows] == wanted
    assert [found.uuid for found in listing.rows] == [
        f"GPU-00000000-0000-4000-8000-{number + 1:012d}" for number in wanted
    ]
    kinds = {smi_messages.message(line).kind for _, line in pieces if line in DIAGNOSTICS}
    kinds |= {smi_messages.message(line).kind for line in errors}
    assert kinds <= listing.kinds


PLAIN = ["name", "driver_version", "memory.total"]


@given(
    lines=st.lists(
        st.one_of(
            st.sampled_from(["NVIDIA H200, 580.95.05, 143771", "NVIDIA L4, 610.43.02, [N/A]"]),
            st.sampled_from([*DIAGNOSTICS, "", "please, call, root", "NVIDIA L4, 610.43.02", "a, 1.2.3.4.5, 7"]),
        ),
        max_size=30,
    )
)
def test_rows_without_index_and_uuid_are_told_by_their_values(lines: list[str]) -> None:
    """No identity was asked for, so that equal rows are as many GPUs."""
    query = {"fields": PLAIN, "call": {"rc": 0, "stdout": "\n".join(lines), "stderr": ""}}
    found = nvidia_smi.read({"path": "/usr/bin/nvidia-smi", "query": query}).rows
    wanted = [line for line in lines if line.startswith("NVIDIA") and line.count(",") == 2]
    assert [f"{row.value('name')}, {row.value('driver_version')}" for row in found] == [
        line.rpartition(",")[0] for line in wanted
    ]
    assert all((row.index, row.uuid, row.bus_id) == (None, None, None) for row in found)
