"""`stream-rater backup`: copies a data file while a process may write to it."""

import os
from pathlib import Path

from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.config.errors import Failed
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted


def backup(path: Path, to: Path) -> str:
    """Copy a data file as it is at one instant to a new file, and check the copy. Returns a line
    about it.

    The copy has its name only once it is whole and on the disk. Raises Failed.
    """
    part = to.with_name(to.name + ".part")
    with named_failures():
        for each in (to, part):
            if each.exists():
                raise Failed(f"{each}: there is such a file already: name another one")
        try:
            with data_file(str(path)) as file:
                file.copy_to(part)
            with data_file(str(part)) as copy:
                if faults := copy.faults():
                    raise Failed(f"{path}: its copy is damaged, so it is, too: {faults[0]}")
                rounds, changes = sum(copy.ends()), sum(copy.changed_ends())
            os.link(part, to)  # fails if there is one by now
        finally:
            part.unlink(missing_ok=True)
    return (
        f"{to}: {counted(rounds, 'record')} and {counted(changes, 'rating change')}; `stream-rater "
        f"verify --data {to}` compares its ratings with its rounds"
    )
