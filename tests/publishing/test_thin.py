from pathlib import Path
from .commands import Commands
from .stories import compact
from .trees import tree, is_fenced
import time


def test_thin(commands: Commands, checkpoint: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(checkpoint, tmp_path / "b")
    shutil.copytree(checkpoint, "/tmp/rich", dirs_exist_ok=True)
    s = time.time()
    traced = commands.trace(compact(checkpoint), checkpoint)
    print(time.time() - s)
    print(traced.ended)
    for c in traced.calls:
        print(c)
    print(len(traced.calls))
    ck = tmp_path / "b"
    for kind in "signal=SIGKILL", "error=EIO":
        c = [c for c in traced.calls if c.name == "rename"][8]
        s = time.time()
        t2 = commands.trace(compact(ck), ck, f"{c.name}:{kind}:when={c.number}")
        print(time.time() - s)
        print(t2.ended, t2.calls[-3:], is_fenced(ck))
        s = time.time()
        print(commands.run("recover", str(ck)))
        print(time.time() - s)
    assert 0
