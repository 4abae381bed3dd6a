"""The rule on a folder of CUDA sources that was made by hand, where FlashInfer never looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetcheck.facts.records import FlashInfer, Venv
from fleetcheck.rules import text
from fleetcheck.rules.csrc import ENV_PY, csrc_matches
from fleetcheck.rules.rule import Hit, Look, rule

CARRIED = "If anything was carried over, restart what serves from this environment. (restarts serving)"


@rule(
    "csrc-decoy",
    "csrc",
    "error",
    summary="A hand-made folder `flashinfer/csrc` lies beside the one that FlashInfer reads.",
    explanation=(
        "No release of FlashInfer installs or reads a folder `csrc` directly below its package folder. "
        "Where one was made by hand, edits made in it have no effect, while `data/csrc` is compiled as it "
        "was: whoever put them there still uses the wrong path. It is a warning where the folder is empty, and "
        "where an edited module or a start-up file may make it the folder that is read."
    ),
    remedy=(
        "Carry edits that were made there over to `data/csrc`, name the files that this changes under "
        "`expect.files` (they are `package-modified` otherwise), and move the folder away. Restart what serves "
        "where anything was carried over."
    ),
    references=(ENV_PY,),
)
def csrc_decoy(look: Look) -> Iterator[Hit]:
    """Fire where such a folder is there, and is not the one that is read."""
    for venv, found in look.installed():
        read = found.csrc_dir
        if found.decoy is None or read is None or csrc_matches(venv, found, found.decoy):
            continue
        # These may set the path too: the folder could be the one that is compiled, and the steps move it away.
        if found.env_error is not None or found.env_record in ("missing", "unreadable"):
            continue
        if setters := [*found.redirected, *(one.file for one in found.start_files), *found.replaced]:
            yield _undecided(venv, found, found.decoy, setters)
            continue
        files = "" if found.decoy_files is None else f" ({text.plural(found.decoy_files, 'file')})"
        there = text.brief(read)
        decoy = text.quote(found.decoy)
        yield Hit(
            f"{text.brief(found.decoy)}{files} was made by hand and is never read: "
            f"{text.name(found)} reads {there}. Edits made there have no effect.",
            severity="warning" if found.decoy_files == 0 else None,
            venv=venv.path,
            expected=read,
            seen=found.decoy,
            basis=found.basis,
            remedy=(
                *(
                    (
                        f"diff -r {text.quote(read)} {decoy}",
                        (
                            f"Carry over to {there} what step 1 shows and you want, and name each file that this "
                            "changes with its sha256 under expect.files in the inventory."
                        ),
                    )
                    if found.decoy_files != 0
                    else ()
                ),
                f"mv {decoy} {text.quote(f'{found.decoy}.unused')}",
                *((CARRIED,) if found.decoy_files != 0 else ()),
            ),
        )


def _undecided(venv: Venv, found: FlashInfer, decoy: str, setters: Sequence[str]) -> Hit:
    """Return what is told of the folder where edited modules or start-up files may make it the one to read."""
    paths = [name if name.startswith("/") else f"{found.root or 'flashinfer'}/{name}" for name in setters]
    return Hit(
        f"{text.brief(decoy)} was made by hand, and {text.listing(setters)} may make it the folder that is "
        "compiled: whether it is read cannot be told from the files.",
        severity="warning",
        venv=venv.path,
        expected=found.csrc_dir,
        seen=decoy,
        basis="guessed",
        remedy=(
            f"grep -n -e CSRC_DIR -e __path__ {' '.join(text.quote(path) for path in paths[:3])}",
            "Decide which folder is to be compiled, and take the other setting out; leave the folder until then.",
        ),
    )


RULES = (csrc_decoy,)
