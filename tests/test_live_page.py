"""`nngrad follow`: what the server gives of a run's folder, to whom, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nngrad as nn
from nngrad.training.runs.log import MetricsFile
from nngrad_command.entry import main
from nngrad_command.following.beside import FollowedBeside
from nngrad_command.following.run_folder import MOST_BYTES, RunFolder
from nngrad_command.following.serving import Server

HEAD = "step,seconds,critic_loss\n"
PNG = b"\x89PNG\r\n\x1a\nnot really"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run of three lines and two pictures."""
    run = tmp_path / "run"
    (run / "samples").mkdir(parents=True)
    (run / "metrics.csv").write_text(HEAD + "1,0.5,2.0\n2,0.75,1.5\n3,1.0,nan\n")
    (run / "config.toml").write_text('recipe = "gan"\nsteps = 10\nbatch = 4\n')
    for step in (2, 100000000):
        (run / "samples" / f"step-{step:08d}.png").write_bytes(PNG + str(step).encode())
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "secret.txt").write_text("secret")
    return run


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with Server(RunFolder(folder)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def state(server: Server, place: str = "") -> Any:
    status, headers, content = ask(server, f"/state?place={place}")
    assert status == 200
    assert headers["content-type"] == "application/json"
    return json.loads(content)


# ---------------------------------------------------------------- what is given


def test_the_page_is_whole_and_may_do_little(server: Server) -> None:
    status, headers, content = ask(server, "/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src 'self'" in policy
    text = content.decode()
    assert text.count("<script>") == text.count("<style>") == 1
    assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing comes from elsewhere"
    assert " style=" not in text and "innerHTML" not in text and "eval(" not in text
    assert ask(server, "/", "HEAD")[2] == b""


def test_the_state_of_a_run(server: Server) -> None:
    first = state(server)
    assert (first["recipe"], first["steps"], first["name"]) == ("gan", 10, "run")
    assert "batch" not in first
    assert first["pictures"] == [2, 100000000]
    assert first["lines"] == HEAD + "1,0.5,2.0\n2,0.75,1.5\n3,1.0,nan\n"
    assert first["begins"] and first["all"] and not first.get("finished") and not first["ended"]
    assert first["written"] >= 0


def test_only_what_is_new_is_given(server: Server, folder: Path) -> None:
    place = state(server)["place"]
    again = state(server, place)
    assert (again["lines"], again["begins"], again["place"]) == ("", False, place)
    with open(folder / "metrics.csv", "a") as file:
        file.write("4,1.25,1.0\n5,1.5,0.")  # the last line is being written
    new = state(server, place)
    assert (new["lines"], new["begins"]) == ("4,1.25,1.0\n", False)
    with open(folder / "metrics.csv", "a") as file:
        file.write("5\n")
    assert state(server, new["place"])["lines"] == "5,1.5,0.5\n"


def test_a_run_that_is_resumed_begins_anew(server: Server, folder: Path) -> None:
    place = state(server)["place"]
    resumed = MetricsFile(folder / "metrics.csv", 1)
    shorter = state(server, place)
    assert (shorter["lines"], shorter["begins"]) == (HEAD + "1,0.5,2.0\n", True)
    for step in (2, 3, 4, 5):
        resumed.append({"step": step, "seconds": 2.0 * step, "critic_loss": 0.25})
    longer = state(server, place)
    assert longer["begins"] and longer["lines"].splitlines()[2] == "2,4.0,0.25", "longer than it was, and another one"
    (folder / "metrics.csv").unlink()
    gone = state(server, longer["place"])
    assert (gone["lines"], gone["begins"], gone["place"]) == ("", True, "")


@pytest.mark.parametrize("place", ["x", "-1-0", "99999999-0", "5", "1e3-0", "9" * 400 + "-0", "%00", "7-%27"])
def test_places_that_nobody_was_given(server: Server, place: str) -> None:
    assert state(server, place)["begins"]


def test_long_metrics_come_in_parts(server: Server, folder: Path) -> None:
    lines = [f"{step},0.5,{'1' * 60}\n" for step in range(6000)]
    (folder / "metrics.csv").write_text(HEAD + "".join(lines))
    read, place, parts = "", "", 0
    while True:
        one = state(server, place)
        assert one["lines"].endswith("\n") and len(one["lines"]) <= MOST_BYTES
        assert one["begins"] == (not read)
        read, place, parts = read + one["lines"], one["place"], parts + 1
        if one["all"]:
            break
    assert read == HEAD + "".join(lines)
    assert parts == 2


def test_pictures(server: Server) -> None:
    status, headers, content = ask(server, "/samples/step-00000002.png")
    assert (status, headers["content-type"], content) == (200, "image/png", PNG + b"2")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert ask(server, "/samples/step-100000000.png")[0] == 200
    assert ask(server, "/samples/step-00000003.png")[0] == 404


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    empty = RunFolder(tmp_path / "not there")
    assert empty.lines("") == ("", False, "", True)
    assert (empty.pictures(), empty.settings()) == ([], {})
    assert empty.seconds_since_written() is None
    assert empty.picture("step-00000001.png") is None


def test_a_configuration_that_is_none(folder: Path) -> None:
    for text in ("steps = [", 'steps = "ten"\nrecipe = 3\n', "a." * 2000 + "b = 1\n"):
        (folder / "config.toml").write_text(text)
        assert RunFolder(folder).settings() == {}
    (folder / "config.toml").write_bytes(b"\xff\xfe")
    assert RunFolder(folder).settings() == {}


def test_series_of_monitors(tmp_path: Path) -> None:
    """Those of nnabla's programs, whose monitors have intervals of their own."""
    from nngrad.monitor import Monitor, MonitorSeries

    monitor = Monitor(tmp_path)
    loss, error = (MonitorSeries(name, monitor, interval, verbose=False)
                   for name, interval in (("Training loss", 2), ("Test error", 4)))  # fmt: skip
    for index in range(8):
        loss.add(index, 1 / (index + 1))
        if index < 4:
            error.add(index, index)
    run = RunFolder(tmp_path)
    read = run.lines("")
    assert read.text == "step,Test-error,Training-loss\n1,,0.75\n3,1.5,0.291667\n5,,0.183333\n7,,0.133929\n"
    assert read.begins and read.is_all
    assert run.seconds_since_written() is not None
    for index in range(8, 10):
        loss.add(index, 1.0)
    assert run.lines(read.place)[:2] == ("9,,1\n", False), "only what is new"
    for index in range(4, 8):
        error.add(index, 2.0)
    assert run.lines(read.place).begins, "a line has become another one"
    (tmp_path / "Link.series.txt").symlink_to(tmp_path / "Test-error.series.txt")
    assert "Link" not in run.lines("").text


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("path", [
    "/config.toml", "/metrics.csv", "/samples", "/samples/", "/samples/../config.toml", "/samples/..%2fconfig.toml",
    "/samples/%2e%2e/secret.txt", "/../secret.txt", "//secret.txt", "/samples//step-00000002.png", "/etc/passwd",
    "/samples/step-00000002.png/", "/samples/step-00000002.png%00.txt", "/samples/step-00000002.PNG", "/state/",
    "/samples/./step-00000002.png", "/samples\\step-00000002.png", "/page.html", "/nothing",
])  # fmt: skip
def test_nothing_else_is_there(server: Server, path: str) -> None:
    status, _, content = ask(server, path)
    assert status == 404
    assert b"secret" not in content and b"step" not in content


def test_links_lead_nowhere(server: Server, folder: Path) -> None:
    link = folder / "samples" / "step-00000007.png"
    link.symlink_to(folder.parent / "secret.png")
    assert ask(server, "/samples/step-00000007.png")[0] == 404
    (folder / "metrics.csv").unlink()
    (folder / "metrics.csv").symlink_to(folder.parent / "secret.txt")
    assert state(server)["lines"] == ""
    (folder / "samples").rename(folder.parent / "moved")
    (folder / "samples").symlink_to(folder.parent / "moved")
    assert state(server)["pictures"] == []
    assert ask(server, "/samples/step-00000002.png")[0] == 404


def test_what_is_no_plain_file_is_not_read(server: Server, folder: Path) -> None:
    os.mkfifo(folder / "samples" / "step-00000008.png")  # to open it might wait for ever
    (folder / "samples" / "step-00000009.png").mkdir()
    assert ask(server, "/samples/step-00000008.png")[0] == 404
    assert ask(server, "/samples/step-00000009.png")[0] == 404


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1.evil:{port}",
                                  "localhost:1", "[::1]:{port}"])  # fmt: skip
def test_other_hosts_are_refused(server: Server, host: str) -> None:
    for path in ("/", "/state", "/samples/step-00000002.png"):
        status, _, content = ask(server, path, Host=host.format(port=server.port))
        assert status == 421
        assert b"gan" not in content and b"html" not in content and b"PNG" not in content
    assert ask(server, "/", Host=f"LocalHost:{server.port}")[0] == 200


def test_two_hosts_are_refused(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 421 " in raw.makefile("rb").readline()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "FLY"])
def test_it_is_only_read(server: Server, folder: Path, method: str) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    status, headers, _ = ask(server, "/state", method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_it_listens_on_loopback(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.port}/"


# ---------------------------------------------------------------- the command


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["follow", str(tmp_path / "none")]) == 1
    assert "there is no such folder; give the --out of a run" in capsys.readouterr().err


def test_a_port_that_is_taken(server: Server, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["follow", str(folder), "--port", str(server.port)]) == 1
    assert f"port {server.port}: " in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_what_is_no_port(folder: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["follow", str(folder), f"--port={port}"])
    assert "is not a port" in capsys.readouterr().err


def test_the_command_ends_at_an_interrupt(folder: Path) -> None:
    command = [sys.executable, "-m", "nngrad_command", "follow", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        port = int(line.rpartition("127.0.0.1:")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        process.send_signal(2)
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""


def test_beside_a_training_it_tells_of_the_end(folder: Path) -> None:
    with FollowedBeside(folder) as beside:
        assert beside.address in beside.said and beside.address.startswith("http://127.0.0.1:")
        port = int(beside.address.rpartition(":")[2].strip("/"))
        assert not read(port)["ended"]
        with open(folder / "metrics.csv", "a") as file:
            file.write("4,1.25,1.0\n")
    last = read(port)
    for _ in range(100):  # what is beside sees the end a moment later
        if last["ended"]:
            break
        time.sleep(0.05)
        last = read(port)
    assert last["ended"] and last["lines"].endswith("4,1.25,1.0\n")
    with contextlib.suppress(OSError):
        for _ in range(200):  # and goes, once it has told
            read(port)
            time.sleep(0.05)
        pytest.fail("the server is there for ever")


def read(port: int) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/state?place=")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_a_server_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with FollowedBeside(tmp_path) as beside:
        assert beside.address == ""
        assert "does not start" in beside.said


def test_the_demo_writes_what_the_page_reads(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    from nngrad.command.digits import trained, untrained

    (tmp_path / "metrics.csv").write_text("step\n1\n")
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "step-00000003.png").touch()
    trained(untrained(2), nn.training_log(tmp_path, steps=2))
    run = RunFolder(tmp_path)
    head, first, *_ = run.lines("").text.splitlines()
    assert head == "step,seconds,distance,critic_loss,gradient_norm"
    assert first.startswith("1,")
    assert run.settings() == {"steps": 2, "finished": True}
    assert run.pictures() == [2]
    assert (run.picture("step-00000002.png") or b"").startswith(b"\x89PNG")
    assert (tmp_path / "earlier-1" / "metrics.csv").read_text() == "step\n1\n"
    assert (tmp_path / "earlier-1" / "samples" / "step-00000003.png").exists()
