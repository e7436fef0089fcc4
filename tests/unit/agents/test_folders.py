"""Work folders on hosts that others use, too: what they plant is neither run, nor written, nor read by an agent."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.agents.agent.folders import Owner, reach
from orchestrator.agents.agent.steps import Refusal
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, LaunchError, OrchError
from orchestrator.parts.launch import Exited, Launch
from orchestrator.remote.events import AgentLost
from tests.helpers.reachable import tmp_path

__all__ = ["tmp_path"]

pytestmark = pytest.mark.usefixtures("strays")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users are root's to play")
EVE = 65533  # a user of the same host
KEPT = "a line that is root's\n"


def soon() -> Deadline:
    return Deadline.after(60)


def as_user(uid: int, script: str, *arguments: object) -> None:
    """Carry out a shell script as somebody else."""
    argv = ["sh", "-ec", script, "sh", *map(str, arguments)]
    subprocess.run(argv, user=uid, group=uid, extra_groups=[], cwd="/", check=True)


@pytest.fixture
def place(tmp_path):
    """A folder below which others may look."""
    return tmp_path


@pytest.fixture
def user():
    return pwd.getpwnam("nobody")


@pytest.fixture
def sudoer(connect_agent, user, place):
    """A client of an agent that is root and works for a user, and the run's folder, which is the user's."""
    client = connect_agent(env={**os.environ, "SUDO_UID": str(user.pw_uid), "SUDO_USER": user.pw_name}, hello=False)
    return client, Path(client.hello(soon()).folder)


@pytest.fixture
def victim(place):
    file = place / "victim"
    file.write_text(KEPT)
    file.chmod(0o600)
    yield file
    assert file.read_text() == KEPT
    assert (file.stat().st_uid, file.stat().st_mode & 0o777) == (0, 0o600)


def printing(**options: object) -> Launch:
    return Launch(**{"name": "p", "node": "n1", "role": "rank", "argv": ("id", "-u"), "ready": Exited(), **options})


# The way to the run's folder


@needs_root
@pytest.mark.parametrize(
    ("owned", "told"),
    [
        ((EVE, 0o1777), r"/shared belongs to user 65533, who could exchange what lies below; name in `work:`"),
        ((EVE, 0o777), "/shared belongs to user 65533"),
        ((0, 0o777), r"/shared \(of user 0, mode 0777\) lets others exchange what lies in it: sudo chmod \+t"),
        ((0, 0o1777), None),
        ((0, 0o755), None),
    ],
)
@pytest.mark.parametrize("below", ["", "work"], ids=["work", "ancestor"])
def test_no_agent_works_where_others_could_exchange_its_files(connect_agent, place, owned, told, below):
    owner, mode = owned
    shared = place / "shared"
    shared.mkdir()
    os.chown(shared, owner, owner)
    shared.chmod(mode)
    folder = str(shared / below / "run")
    if told:
        with pytest.raises(AgentError, match=told):
            connect_agent(hello=False).hello(soon(), folder=folder)
        assert not list(shared.iterdir())
    else:
        assert connect_agent(hello=False).hello(soon(), folder=folder).folder == folder


@needs_root
def test_a_link_of_another_user_on_the_way_is_refused_and_one_of_roots_followed(connect_agent, place, run_name):
    (place / "disk").mkdir()
    drop = place / "drop"
    drop.mkdir()
    drop.chmod(0o1777)
    (place / "mine").symlink_to("drop/../disk")
    as_user(EVE, 'ln -s "$1" "$2"', place / "disk", drop / "hers")
    folder = connect_agent(hello=False).hello(soon(), folder=str(place / "mine" / run_name)).folder
    assert folder == str(place / "disk" / run_name)
    with pytest.raises(AgentError, match="drop/hers is a link of user 65533"):
        connect_agent(hello=False, run=run_name + "-2").hello(soon(), folder=str(drop / "hers" / run_name))


@needs_root
@pytest.mark.parametrize("planted", ['mkdir "$1"', 'ln -s "$2" "$1"', 'mkfifo "$1"'], ids=["folder", "link", "fifo"])
def test_what_lies_in_place_of_the_runs_folder_is_refused(connect_agent, place, run_name, planted):
    drop, disk = place / "drop", place / "disk"
    drop.mkdir()
    drop.chmod(0o1777)
    disk.mkdir()
    as_user(EVE, planted, drop / run_name, disk)
    with pytest.raises(AgentError, match=r"belongs to user 65533|is a link"):
        connect_agent(hello=False).hello(soon(), folder=str(drop / run_name))
    assert not list(disk.iterdir())


def test_a_group_of_ones_own_is_nobody_else(place):
    """Many systems give each user a group, and folders that it may write."""
    folder = place / "own"
    folder.mkdir()
    folder.chmod(0o775)
    me = Owner(os.geteuid(), os.geteuid(), os.getegid())
    if me.alone_in(os.getegid()):
        reach(str(folder), me).close()
    with pytest.raises(Refusal, match="lets others exchange"):
        reach(str(folder), me._replace(gid=me.gid + 1)).close() if os.getegid() else vouch_for_a_group(folder, me)


def vouch_for_a_group(folder: Path, me: Owner) -> None:
    os.chown(folder, -1, EVE)
    reach(str(folder), me).close()


@needs_root
def test_each_user_has_a_work_folder(connect_agent, place, user, run_name):
    env = {**os.environ, "SUDO_UID": str(user.pw_uid), "SUDO_USER": user.pw_name}
    client = connect_agent(env=env, hello=False)
    folder = Path(client.hello(soon(), folder=f"{place}/orch-{{uid}}/{run_name}").folder)
    assert folder == place / f"orch-{user.pw_uid}" / run_name
    for made in (folder, folder.parent):
        assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (user.pw_uid, 0o700)


@needs_root
def test_a_folder_that_another_agent_is_about_to_give_to_its_user_is_awaited(place, user):
    """Two agents of one user begin on hosts that share a disk: one finds what the other has made, and not given yet."""
    owner = Owner(0, user.pw_uid, user.pw_gid)
    made = place / "orch"
    made.mkdir(0o700)
    giver = threading.Timer(0.2, os.chown, (made, user.pw_uid, user.pw_gid))
    with reach(str(place), Owner(0, 0, 0)) as above:
        giver.start()
        above.make("orch", owner).close()
        giver.join()
        (place / "roots").mkdir(0o700)
        (place / "roots" / "file").touch()  # nobody is about to give that away
        with pytest.raises(Refusal, match=f"roots belongs to user 0, not to {user.pw_uid}"):
            above.make("roots", owner)


# In the run's folder, which belongs to the user for whom root works


@needs_root
def test_a_module_that_the_user_planted_beside_a_program_of_roots_is_not_run(sudoer, user, place):
    client, folder = sudoer
    mark = place / "mark"
    plant = 'mkdir -p "$1"; printf "import os\\nopen(\'$2\', \'w\').write(str(os.getuid()))\\n" > "$1/json.py"'
    as_user(user.pw_uid, plant, folder / "helper", mark)
    helper = printing(
        name="helper", argv=(sys.executable, "helper.py"), files={"helper.py": b"import json\n"}, privileged=True
    )
    with pytest.raises(LaunchError, match=f"helper belongs to user {user.pw_uid}, not to 0"):
        client.start(helper, soon())
    assert not mark.exists()


@needs_root
def test_the_folder_of_what_runs_as_root_is_roots(sudoer, user):
    client, folder = sudoer
    client.start(printing(privileged=True, files={"data/x": b"1"}), soon())
    assert (folder / "p/stdout").read_text() == "0\n"
    for path in (folder / "p", folder / "p/data", folder / "p/data/x", folder / "p/stdout"):
        assert path.stat().st_uid == 0, path
    with pytest.raises(subprocess.CalledProcessError):
        as_user(user.pw_uid, 'echo > "$1"', folder / "p/json.py")
    as_user(user.pw_uid, 'cat "$1" > /dev/null', folder / "p/stdout")


@needs_root
@pytest.mark.parametrize("how", ["link", "hard-link", "fifo"])
def test_what_lies_in_place_of_an_output_is_not_written(sudoer, user, victim, how):
    client, folder = sudoer
    client.put("p/data", b"", soon())
    planted = folder / "p/stdout"
    if how == "link":
        as_user(user.pw_uid, 'ln -s "$1" "$2"', victim, planted)
    elif how == "fifo":
        as_user(user.pw_uid, 'mkfifo "$1"', planted)
    else:
        planted.hardlink_to(victim)  # where the kernel protects no hard links anybody may
    with pytest.raises(LaunchError, match="p/stdout is no file of this run"):
        client.start(printing(), soon())
    assert client.run(["echo", "alive"], soon()).stdout == "alive\n"


@needs_root
@pytest.mark.parametrize("how", ["link", "hard-link", "fifo"])
def test_what_lies_in_place_of_a_file_is_not_read(sudoer, user, victim, tmp_path, how):
    client, folder = sudoer
    client.start(printing(), soon())
    planted = folder / "p/stdout"
    planted.unlink()
    if how == "link":
        as_user(user.pw_uid, 'ln -s "$1" "$2"', victim, planted)
    elif how == "fifo":
        as_user(user.pw_uid, 'mkfifo "$1"', planted)
    else:
        planted.hardlink_to(victim)
    assert client.read(["p/stdout"], soon()).texts == {"p/stdout": None}
    assert "p/stdout" not in [file.path for file in client.files(soon())]
    with pytest.raises(AgentError, match="p/stdout is no file of this run"):
        client.fetch(RunFile("p/stdout", 10), tmp_path / "home", soon())
    assert client.stop(printing(), soon()).tail == ""
    client.remove(soon())
    assert not folder.exists()


@needs_root
@pytest.mark.parametrize("name", ["p/data", "p/sub/data"])
def test_a_folder_that_was_renamed_for_a_link_is_not_entered(sudoer, user, place, name):
    client, folder = sudoer
    client.put(name, b"1", soon())
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    exchanged = (folder / name).parent
    as_user(user.pw_uid, 'mv "$1" "$1.old"; ln -s "$2" "$1"', exchanged, elsewhere)
    with pytest.raises(AgentError, match=f"{exchanged.name} is a link"):
        client.put(name, b"2", soon())
    if name == "p/data":
        with pytest.raises(LaunchError, match="p is a link"):
            client.start(printing(), soon())
    assert not list(elsewhere.iterdir())


@needs_root
def test_after_its_greeting_an_agent_works_in_the_folder_that_it_made_wherever_its_path_leads(sudoer, user, place):
    client, folder = sudoer
    elsewhere, moved = place / "elsewhere", folder.with_name("moved")
    elsewhere.mkdir()
    as_user(user.pw_uid, 'mv "$1" "$2"; ln -s "$3" "$1"', folder, moved, elsewhere)
    client.change("rate", soon(), undo=[["true"]], apply=[["true"]])
    client.start(printing(argv=("sh", "-c", "pwd -P"), privileged=True), soon())
    assert (moved / "p/stdout").read_text() == f"{moved}/p\n"
    assert (moved / "undo.jsonl").stat().st_uid == 0
    assert not list(elsewhere.iterdir())
    client.undo("rate", soon())
    with pytest.raises(AgentError, match="is a link"):
        client.remove(soon())
    assert elsewhere.exists()


@needs_root
def test_undo_commands_that_the_user_wrote_are_not_run_as_root(connect_agent, sudoer, user, place):
    client, folder = sudoer
    os.kill(client.channel.pid, signal.SIGKILL)
    client.await_event(lambda event: isinstance(event, AgentLost))
    entry = json.dumps({"id": "x", "undo": [["touch", str(place / "undone")]]})
    as_user(user.pw_uid, 'echo "$1" > "$2/undo.jsonl"', entry, folder)
    env = {**os.environ, "SUDO_UID": str(user.pw_uid), "SUDO_USER": user.pw_name}
    swept = connect_agent(hello=False, run="sweep", env=env).sweep(soon(), keep_data=False)
    assert (swept.undone, swept.removed) == ((), ())
    assert f"undo.jsonl belongs to user {user.pw_uid}: what it holds is not run" in swept.failed[0].text
    assert not (place / "undone").exists()


# One work folder of several hosts


def killed_with_a_change(connect_agent, tmp_path, **options):
    client = connect_agent(**options)
    client.change("rate", soon(), undo=[["touch", str(tmp_path / "undone")]], apply=[["true"]])
    os.kill(client.channel.pid, signal.SIGKILL)
    client.await_event(lambda event: isinstance(event, AgentLost))
    return Path(client.node.folder(client._run))


def of_another_machine(folder: Path) -> None:
    marker = folder / ".orch-run.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "boot": "another", "machine": "another 1"}) + "\n")


def test_each_host_has_its_own_folder_of_a_run_in_a_shared_work_folder(connect_agent, tmp_path):
    folder = killed_with_a_change(connect_agent, tmp_path)
    told = (folder / ".orch-run.json").read_text()
    of_another_machine(folder)
    other = connect_agent(name="n2")
    assert other.sweep(soon(), keep_data=False).removed == ()
    other.close(soon())
    (folder / ".orch-run.json").write_text(told)
    assert not (tmp_path / "undone").exists()
    assert connect_agent().sweep(soon(), keep_data=True).undone == ("rate",)
    assert (tmp_path / "undone").exists()


def test_two_hosts_of_one_name_are_told_apart(connect_agent, tmp_path):
    folder = killed_with_a_change(connect_agent, tmp_path)
    of_another_machine(folder)
    with pytest.raises(OrchError, match="is of the machine another 1: each host of an inventory needs a name"):
        connect_agent()
    assert '"done"' not in (folder / "undo.jsonl").read_text()


# What stays


def test_an_empty_work_folder_goes_with_the_last_run_in_it(connect_agent, tmp_path):
    first, second = connect_agent(run="first"), connect_agent(run="second")
    first.remove(soon())
    assert (tmp_path / "work").exists()
    second.remove(soon())
    assert not (tmp_path / "work").exists()
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
    assert (swept.kept, swept.removed) == ((), ())


def test_a_work_folder_that_somebody_made_for_it_stays(connect_agent, tmp_path):
    (tmp_path / "work").mkdir(mode=0o755)
    connect_agent().remove(soon())
    assert (tmp_path / "work").exists()
