"""Where the programs of the control plane come from, and what is said when they come from nowhere."""

import hashlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llmservice_testing.cluster import wait_until
from llmservice_testing.controlplane import build, download
from llmservice_testing.controlplane.assets import (
    AssetsNotFoundError,
    Source,
    UnknownSourceError,
    allowed,
    find_assets,
    first_that_works,
    from_cache_or,
    sources,
)
from llmservice_testing.controlplane.binaries import PROGRAMS, Assets, SourceError, cache_root
from llmservice_testing.controlplane.download import Archive, Limits
from llmservice_testing.controlplane.progress import Task


def put_programs(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    return folder


def fill(scratch: Path) -> None:
    put_programs(scratch)


def unavailable(reason: str) -> Callable[[], Assets]:
    def find() -> Assets:
        raise SourceError(reason)

    return find


class TestOrder:
    def test_the_folder_in_kubebuilder_assets_comes_before_the_cache(self, tmp_path: Path) -> None:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "KUBEBUILDER_ASSETS": str(tmp_path / "theirs")}
        put_programs(cache_root(environment) / f"v{build.VERSION}")
        theirs = put_programs(tmp_path / "theirs")

        assert find_assets(environment) == Assets(theirs / "etcd", theirs / "kube-apiserver")

    def test_the_cache_is_used_where_kubebuilder_assets_is_not_set_or_has_no_programs(self, tmp_path: Path) -> None:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        cached = put_programs(cache_root(environment) / f"v{build.VERSION}")

        assert find_assets(environment).etcd == cached / "etcd"
        assert find_assets({**environment, "KUBEBUILDER_ASSETS": str(tmp_path)}).etcd == cached / "etcd"

    def test_in_the_cache_what_was_built_comes_before_what_was_downloaded(self, tmp_path: Path) -> None:
        environment = {"XDG_CACHE_HOME": str(tmp_path)}
        downloaded = put_programs(cache_root(environment) / f"v{download.VERSION}-envtest")
        assert find_assets(environment).etcd == downloaded / "etcd"

        built = put_programs(cache_root(environment) / f"v{build.VERSION}")
        assert find_assets(environment).etcd == built / "etcd"

    def test_the_download_is_tried_before_the_build(self) -> None:
        assert [source.name for source in sources({})] == ["assets", "cache", "download", "build"]

    def test_the_first_source_that_works_is_taken_and_later_ones_are_left_alone(self) -> None:
        found = Assets(Path("etcd"), Path("kube-apiserver"))

        def never() -> Assets:
            raise AssertionError("this source must not be asked")

        candidates = [Source("one", unavailable("none")), Source("two", lambda: found), Source("three", never)]
        assert first_that_works(candidates) == found

    def test_a_program_that_cannot_be_executed_does_not_count(self, tmp_path: Path) -> None:
        folder = put_programs(tmp_path / "assets")
        (folder / "etcd").chmod(0o644)
        with pytest.raises(SourceError, match="etcd is not executable"):
            Assets.in_folder(folder)

    @pytest.mark.parametrize("configured", ["", "relative/path"])
    def test_a_cache_folder_that_is_not_absolute_is_ignored(self, configured: str) -> None:
        expected = Path.home() / ".cache" / "llmservice" / "controlplane"
        assert cache_root({"XDG_CACHE_HOME": configured}) == expected


class TestSwitch:
    def test_it_allows_the_named_source_alone(self, tmp_path: Path) -> None:
        environment = {"XDG_CACHE_HOME": str(tmp_path), "LLMSERVICE_CONTROLPLANE": "assets"}
        put_programs(cache_root(environment) / f"v{build.VERSION}")

        with pytest.raises(AssetsNotFoundError) as caught:
            find_assets(environment)

        assert caught.value.failures == {"assets": "KUBEBUILDER_ASSETS is not set"}

    def test_build_uses_what_was_built_before(self, tmp_path: Path) -> None:
        environment = {"XDG_CACHE_HOME": str(tmp_path), "LLMSERVICE_CONTROLPLANE": "build"}
        cached = put_programs(cache_root(environment) / f"v{build.VERSION}")
        assert find_assets(environment).etcd == cached / "etcd"

    def test_an_unknown_name_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(UnknownSourceError, match="'docker'; it must be one of assets, cache, download, build"):
            allowed(sources({}), "docker")


class TestError:
    def test_it_lists_what_was_tried_why_it_failed_and_what_to_do(self) -> None:
        candidates = [Source("cache", unavailable("it is empty")), Source("build", unavailable("no Go:\nnot found"))]

        with pytest.raises(AssetsNotFoundError) as caught:
            first_that_works(candidates)

        message = str(caught.value)
        assert "  - cache: it is empty\n  - build: no Go:\n      not found\n" in message
        for help_ in ("KUBEBUILDER_ASSETS", "github.com", "Go 1.25", "--assets-only"):
            assert help_ in message


class TestCache:
    def test_a_failure_leaves_nothing_behind(self, tmp_path: Path) -> None:
        def obtain(scratch: Path) -> None:
            put_programs(scratch)
            raise SourceError("interrupted")

        with pytest.raises(SourceError, match="interrupted"):
            from_cache_or(tmp_path / "v1", obtain)

        assert [path.name for path in tmp_path.iterdir()] == [".v1.lock"]

    def test_what_was_obtained_is_kept_and_not_obtained_again(self, tmp_path: Path) -> None:
        def obtain_again(scratch: Path) -> None:
            raise AssertionError("it is there already")

        first = from_cache_or(tmp_path / "v1", fill)

        assert from_cache_or(tmp_path / "v1", obtain_again) == first

    def test_half_of_the_programs_is_completed(self, tmp_path: Path) -> None:
        (put_programs(tmp_path / "v1") / "etcd").unlink()
        assert from_cache_or(tmp_path / "v1", fill) == Assets.in_folder(tmp_path / "v1")

    def test_of_two_at_a_time_only_one_obtains(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        obtained: list[Path] = []
        begun, go_on = threading.Event(), threading.Event()

        def obtain(scratch: Path) -> None:
            obtained.append(scratch)
            begun.set()
            assert go_on.wait(10)
            put_programs(scratch)

        with ThreadPoolExecutor() as workers:
            first = workers.submit(from_cache_or, tmp_path / "v1", obtain)
            assert begun.wait(10)
            second = workers.submit(from_cache_or, tmp_path / "v1", obtain)
            said = ""

            def second_waits() -> bool:
                nonlocal said
                said += capsys.readouterr().err
                return "Waiting for another process" in said

            wait_until(second_waits, 10)
            go_on.set()
            assert first.result(10) == second.result(10)

        assert len(obtained) == 1

    def test_a_cache_that_cannot_be_written_is_a_reason_and_not_a_crash(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(SourceError, match="cannot be filled"):
            from_cache_or(tmp_path / "file" / "v1", lambda _: None)


# Downloads


def tar(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


GOOD = tar(
    {
        "controller-tools/envtest/etcd": b"the etcd",
        "../../kube-apiserver": b"the apiserver",  # a path that must not decide where it goes
        "controller-tools/envtest/kubectl": b"not needed",
    }
)
ARCHIVES = {"/good": GOOD, "/half": tar({"etcd": b"the etcd"}), "/page": b"<html>", "/cut": GOOD[:-20]}


class ArchiveServer:
    """Serves `ARCHIVES`, and two more paths: one redirects, one does not answer before `close`."""

    def __init__(self) -> None:
        release = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/hangs":
                    release.wait(30)
                    self.close_connection = True
                elif self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", "/good")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif self.path in ARCHIVES:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(ARCHIVES[self.path])))
                    self.end_headers()
                    self.wfile.write(ARCHIVES[self.path])
                else:
                    self.send_error(404)

            def log_message(self, *_: object) -> None:
                """Nothing: a test's output is not the place."""

        self._release = release
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def archive(self, path: str, *, content: bytes | None = None) -> Archive:
        """The archive at a path; `content` is what its checksum is of, None what is really there."""
        expected = ARCHIVES.get(path, GOOD) if content is None else content
        url = f"http://127.0.0.1:{self._server.server_port}{path}"
        return Archive(url, hashlib.sha512(expected).hexdigest())

    def close(self) -> None:
        self._release.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    running = ArchiveServer()
    yield running
    running.close()


class TestDownload:
    @pytest.mark.parametrize("path", ["/good", "/moved"])
    def test_the_programs_are_unpacked_by_name_and_nothing_else_is(
        self, server: ArchiveServer, tmp_path: Path, path: str
    ) -> None:
        download.download(server.archive(path), tmp_path)

        contents = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        assert contents == {"etcd": b"the etcd", "kube-apiserver": b"the apiserver"}

    def test_what_was_downloaded_is_ready_to_run_in_the_cache(self, server: ArchiveServer, tmp_path: Path) -> None:
        found = from_cache_or(tmp_path / "v1", lambda folder: download.download(server.archive("/good"), folder))
        assert found == Assets.in_folder(tmp_path / "v1")

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("/missing", "404"),
            ("/page", "cannot be unpacked"),
            ("/cut", "cannot be unpacked"),
            ("/half", "contains no kube-apiserver"),
        ],
    )
    def test_anything_but_a_whole_archive_with_both_programs_is_refused(
        self, server: ArchiveServer, tmp_path: Path, path: str, reason: str
    ) -> None:
        with pytest.raises(SourceError, match=reason):
            from_cache_or(tmp_path / "v1", lambda folder: download.download(server.archive(path), folder))
        assert not (tmp_path / "v1").exists()

    def test_an_archive_with_another_checksum_is_refused_unopened(self, server: ArchiveServer, tmp_path: Path) -> None:
        archive = server.archive("/good", content=b"something else")
        with pytest.raises(SourceError, match=r"has the SHA-512 checksum [0-9a-f]{128}, not [0-9a-f]{128}"):
            download.download(archive, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_server_that_never_answers_is_given_up(self, server: ArchiveServer, tmp_path: Path) -> None:
        began = time.monotonic()
        with pytest.raises(SourceError, match="timed out"):
            download.download(server.archive("/hangs"), tmp_path, limits=Limits(silence=0.2))
        assert time.monotonic() - began < 10

    def test_a_download_that_takes_too_long_is_given_up(self, server: ArchiveServer, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="took more than 0 s"):
            download.download(server.archive("/good"), tmp_path, limits=Limits(total=0))

    def test_an_address_where_nothing_listens_is_given_up_at_once(self, server: ArchiveServer, tmp_path: Path) -> None:
        archive = server.archive("/good")
        server.close()
        with pytest.raises(SourceError, match="refused"):
            download.download(archive, tmp_path)

    def test_a_resolver_that_never_answers_is_given_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        release = threading.Event()
        monkeypatch.setattr("socket.getaddrinfo", lambda *_: release.wait(30))
        with pytest.raises(SourceError, match=r"example\.com was not resolved within 0\.1 s"):
            download.download(Archive("https://example.com/x", ""), tmp_path, limits=Limits(connect=0.1))
        release.set()

    @pytest.mark.parametrize(("machine", "architecture"), [("x86_64", "amd64"), ("aarch64", "arm64")])
    def test_the_official_archive_fits_the_machine(self, machine: str, architecture: str) -> None:
        archive = download.envtest_archive(machine)
        assert archive.url.endswith(
            f"/envtest-v{download.VERSION}/envtest-v{download.VERSION}-linux-{architecture}.tar.gz"
        )
        assert re.fullmatch("[0-9a-f]{128}", archive.sha512)

    def test_a_machine_without_an_official_archive_is_told_so(self) -> None:
        with pytest.raises(SourceError, match="no archive is known for Linux on riscv64"):
            download.envtest_archive("riscv64")


class TestBuild:
    def test_without_go_it_says_where_it_looked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(build, "_USUAL_GO", tmp_path / "go")
        with pytest.raises(SourceError, match=f"neither `go` on the PATH nor {tmp_path}/go"):
            build.find_go()

    def test_a_build_that_fails_is_reported_with_the_last_that_go_said(self, tmp_path: Path) -> None:
        with Task("Building") as task, pytest.raises(SourceError, match="ended with status 3:\nno such module"):
            build.run_go(["/bin/sh", "-c", "echo no such module >&2; exit 3"], tmp_path, task)

    def test_a_build_that_hangs_is_ended_with_all_it_started(self, tmp_path: Path) -> None:
        compiler = "sleep 60 & echo $! > pid; wait"
        with Task("Building") as task, pytest.raises(SourceError, match=r"not built within 0\.1 s"):
            build.run_go(["/bin/sh", "-c", compiler], tmp_path, task, timeout=0.1)

        stat = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
        wait_until(lambda: not stat.exists() or ") Z " in stat.read_text(), 10, what="the compiler being gone")

    @pytest.mark.parametrize("program", build.BUILT, ids=lambda program: program.name)
    def test_each_program_has_a_committed_module_that_requires_its_package(self, program: build.Program) -> None:
        module = build.MODULES / program.name
        required = re.findall(r"^require (\S+) v\S+$", (module / "go.mod").read_text(), re.MULTILINE)
        assert len(required) == 1
        assert program.package.startswith(required[0])
        assert f'_ "{program.package}"' in (module / "tools.go").read_text()
        assert (module / "go.sum").stat().st_size > 0

    def test_the_version_in_the_code_is_the_one_in_the_module(self) -> None:
        text = (build.MODULES / "kube-apiserver" / "go.mod").read_text()
        assert f"require k8s.io/kubernetes v{build.VERSION}\n" in text
        staging = re.findall(r"^\tk8s\.io/(\S+) => k8s\.io/(\S+) v0\.(\S+)$", text, re.MULTILINE)
        assert len(staging) == 29
        assert all((old == new, f"1.{version}") == (True, build.VERSION) for old, new, version in staging)


class TestProgress:
    def test_a_log_gets_a_line_at_the_start_then_every_ten_seconds_and_at_the_end(self) -> None:
        now, stream = [100.0], io.StringIO()
        with Task("Building", stream=stream, clock=lambda: now[0]) as task:
            for _ in range(50):
                now[0] += 0.5
                task.tick("half done")

        assert stream.getvalue().splitlines() == [
            "Building ...",
            "Building: 10 s, half done",
            "Building: 20 s, half done",
            "Building: done after 25 s",
        ]

    def test_a_terminal_gets_one_line_that_is_redrawn(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        now, stream = [0.0], Terminal()
        task = Task("Building", stream=stream, clock=lambda: now[0])
        task.__enter__()
        now[0] += 1
        task.tick()
        task.__exit__(SourceError, SourceError("it failed"), None)

        assert stream.getvalue() == "\rBuilding ...\rBuilding: 1 s\rBuilding: failed after 1 s\n"
