"""`zonal.fleet`: every recording is a row, and the page says what to do."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import List, Optional

import pytest

import zonal
from zonal import Effect, Fleet, Host, _fleet
from zonal.advice import ReclaimCost, Saving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of three hosts, and what is none."""
    folder = tmp_path_factory.mktemp("fleet")
    zonal.to_parquet(None, folder / "all.parquet", level=1)
    zonal.from_parquet(folder / "all.parquet", folder / "a.zonal", level=1)
    shutil.copy(folder / "a.zonal", folder / "b.zonal")
    whole = (folder / "a.zonal").read_bytes()
    (folder / "cut.zonal").write_bytes(whole[: len(whole) // 2])
    (folder / "text.zonal").write_text("no recording at all\n")
    (folder / "empty.zonal").write_bytes(b"")
    return folder


def test_a_bad_recording_is_a_row_with_its_reason(folder: Path) -> None:
    told: List[int] = []
    found = zonal.fleet(
        folder / "*.zonal",
        only=["watermark_scale_factor"],
        jobs=2,
        progress=lambda done, of: told.append(done),
    )
    assert [Path(host.source).name for host in found.hosts] == [
        "a.zonal",
        "b.zonal",
        "cut.zonal",
        "empty.zonal",
        "text.zonal",
    ]
    assert [Path(host.source).name for host in found.judged] == ["a.zonal", "b.zonal"]
    assert all(host.reason and Path(host.source).name in host.reason for host in found.bad)
    one, other = found.judged
    alone = zonal.advise(folder / "a.zonal", only=["watermark_scale_factor"])
    assert one.cost_percent_of_cpu == other.cost_percent_of_cpu == alone.cost_percent_of_cpu
    assert one.effects and len(found.clusters()) == 1 and len(told) == 5
    page = found.html()
    assert "cut.zonal" in page and "3 recordings could not be judged" in page


def test_recordings_come_from_object_stores_too(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="SKIPPED: fsspec is missing")
    # `file://` goes the way of every URL: found, fetched and judged by fsspec.
    assert fsspec is not None
    found = zonal.fleet(f"file://{folder}/[at]*.zonal", only=["numa_stat"], jobs=1)
    assert [host.reason is None for host in found.hosts] == [True, False]
    assert f"{folder}/text.zonal: line 1" in (found.hosts[1].reason or "")
    with pytest.raises(zonal.ArgumentError, match="nothing has such a name"):
        zonal.fleet(f"file://{folder}/*.nothing")
    with pytest.raises(zonal.ArgumentError, match="nothing has such a name"):
        zonal.fleet(os.fspath(folder / "*.nothing"))


def test_a_store_that_fails_in_the_middle_is_asked_again_and_then_told(folder: Path) -> None:
    pytest.importorskip("fsspec", reason="SKIPPED: fsspec is missing")
    pytest.importorskip("aiohttp", reason="SKIPPED: aiohttp is missing")
    asked: "Counter[str]" = Counter()
    body = (folder / "a.zonal").read_bytes()

    class Store(BaseHTTPRequestHandler):
        """Sends `once` in half the first time, and `never` each time."""

        def do_HEAD(self) -> None:
            self.send_response(404 if "missing" in self.path else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()

        def do_GET(self) -> None:
            asked[self.path] += 1
            is_first = asked[self.path] == 1
            fails = "never" in self.path or ("once" in self.path and is_first)
            self.do_HEAD()
            self.wfile.write(body[: len(body) // 2] if fails else body)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        found = zonal.fleet(
            [f"{url}/{name}.zonal" for name in ("whole", "once", "never")],
            only=["numa_stat"],
            jobs=1,
        )
    finally:
        server.shutdown()
        server.server_close()
    whole, once, never = found.hosts
    assert whole.reason is None and replace(once, source=whole.source) == whole
    assert never.reason is not None and "/never.zonal: cannot be fetched: " in never.reason


def test_recordings_in_the_memory_of_this_process_are_judged(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="SKIPPED: fsspec is missing")
    with fsspec.open("memory://fleet/a.zonal", "wb") as file:
        file.write((folder / "a.zonal").read_bytes())
    judged = _fleet.judge(("memory://fleet/a.zonal", {}, ["numa_stat"], None))
    alone = _fleet.judge((os.fspath(folder / "a.zonal"), {}, ["numa_stat"], None))
    assert replace(judged, source="") == replace(alone, source="") and judged.reason is None


def test_what_cannot_be_is_named_and_one_of_many_that_is_missing_is_a_row(folder: Path) -> None:
    for recordings, more, expected in [
        ([], {}, "recordings: none"),
        (5, {}, "recordings: int"),
        ("nosuch://bucket/*.zonal", {}, "nosuch://bucket/.*: (Protocol not known|URLs need the)"),
        (folder / "gone.zonal", {}, "gone.zonal: nothing has such a name"),
        (folder / "a.zonal", {"jobs": 0}, "jobs=0; expected 1"),
        (folder / "a.zonal", {"tries": 0}, "tries=0; expected 1"),
    ]:
        with pytest.raises(zonal.Error, match=expected):
            zonal.fleet(recordings, **more)  # type: ignore[arg-type]
    found = zonal.fleet([folder / "gone.zonal", folder / "a.zonal"], only=["numa_stat"], jobs=1)
    assert "gone.zonal: file is missing" in (found.hosts[0].reason or "")
    assert found.hosts[1].reason is None


def host(name: str, saving: float, cost: float = 1.0) -> Host:
    verdict = "helps" if saving > 0.5 else "harms" if saving < -0.5 else "nothing"
    change, setting = "watermark_scale_factor 200", "vm.watermark_scale_factor=200"
    effect = Effect(change, setting, verdict, saving, 1.0)
    says = "worth trying" if verdict == "helps" else "change nothing"
    return Host(
        name, None, name, "6.12", 4, 10.0, 40_000, 1.0, 1.0, cost, 100.0 * cost, 4.0, [effect],
        says, setting=setting if verdict == "helps" else None,
    )  # fmt: skip


RESERVE = "vm.min_free_kbytes=67584"


def waiting(name: str, of_time: float) -> Host:
    """A host whose setting of old is too large a reserve: another one saves waiting, and its
    verdict names that, though a third saves more of a CPU."""
    saving = Saving(of_time / 2, of_time, of_time * 1.5)
    reserve = Effect("min_free_kbytes 67584", RESERVE, "helps", 0.2, 0.0, None, saving)
    busy = host(name, 3.0)
    return replace(
        busy, effects=[*busy.effects, reserve], setting=RESERVE, disk_wait_percent=60.0,
        memory_wait_percent=2.0, read_gib=15.5,
    )  # fmt: skip


def test_the_setting_of_a_host_is_the_one_that_its_verdict_names() -> None:
    found = Fleet([waiting("slow0", 5.0), waiting("slow1", 8.0), host("busy", 3.0)])
    slow = found.hosts[0]
    assert slow.best is not None and slow.best.setting == RESERVE
    assert (slow.best_saving_percent_of_cpu, slow.best_saving_percent_of_time) == (0.2, 5.0)
    text = " ".join(found.summary())
    assert f"On 2 hosts set {RESERVE}: it saves 5 to 8 % of the elapsed time there" in text
    assert "On 1 host set vm.watermark_scale_factor=200: it saves 3 to 3 % of a CPU there" in text
    # Otherwise the three are alike: they wait, and another setting is named.
    assert found.clusters() == [["slow0", "slow1"], ["busy"]]
    quantiles = found.quantiles()
    assert quantiles["best_saving_percent_of_time"][1.0] == 8.0
    assert quantiles["best_saving_percent_of_time"][0.0] == 0.0
    assert quantiles["disk_wait_percent"][0.5] == 60.0, "of the hosts that say"
    page = found.html()
    assert page.count(f"<td>{RESERVE}") == 3, "in its group, and twice in the list of hosts"
    assert "waited for disks %" in page and "saves % of the time" in page
    pandas = pytest.importorskip("pandas", reason="SKIPPED: pandas is missing")
    assert isinstance(found.to_pandas(), pandas.DataFrame)
    assert list(found.to_pandas()["setting"]) == [RESERVE, RESERVE, "vm.watermark_scale_factor=200"]


def test_hosts_that_wait_for_disks_are_not_alike_with_those_that_do_not() -> None:
    calm = host("calm", 0.0)
    waits = [replace(calm, source=f"waits{at}", disk_wait_percent=50.0 + at) for at in range(2)]
    assert Fleet([calm, *waits]).clusters() == [["waits0", "waits1"], ["calm"]]


def test_a_setting_that_saves_time_on_some_hosts_and_a_cpu_on_others_says_both() -> None:
    plain = Effect("min_free_kbytes 67584", RESERVE, "helps", 2.0, 0.0)
    of_cpu = replace(host("busy", 3.0), effects=[plain], setting=RESERVE)
    text = " ".join(Fleet([waiting("slow", 5.0), of_cpu]).summary())
    expected = "it saves 5 to 5 % of the elapsed time on 1 and 2 to 2 % of a CPU on 1, by the model"
    assert expected in text


def test_simulated_hosts_are_called_so() -> None:
    made = replace(host("made", 0.0), simulated=True)
    page = Fleet([made, host("real", 0.0)]).html()
    assert "The recordings of 1 of 2 hosts are of simulated hosts." in page
    assert "simulated" not in Fleet([host("real", 0.0)]).html()


def test_the_page_says_on_which_hosts_to_change_what() -> None:
    hosts = [host(f"idle{at}", 0.0) for at in range(90)]
    hosts += [host(f"busy{at}", 1.0 + at / 10, 64.0) for at in range(6)]
    hosts += [host(f"hurt{at}", -2.0, 1024.0) for at in range(3)]
    found = Fleet(hosts + [Host("bad", reason="it is <empty>")])
    text = " ".join(found.summary())
    assert "Change nothing on 93 of 99 hosts." in text
    assert "On 6 hosts set vm.watermark_scale_factor=200: it saves 1 to 1.5 % of a CPU" in text
    assert "Do not set watermark_scale_factor 200 everywhere: it helps 6 hosts and harms 3" in text
    assert [len(group) for group in found.clusters()] == [90, 6, 3]
    assert found.quantiles()["cost_percent_of_cpu"][0.5] == 1.0
    sides = found.settings()["watermark_scale_factor 200"]
    assert (len(sides["helps"]), len(sides["harms"]), len(sides["nothing"])) == (6, 3, 90)
    assert "it is &lt;empty&gt;" in found.html()


def test_hosts_whose_recording_does_not_say_are_a_group_of_their_own() -> None:
    change, setting = "watermark_scale_factor 200", "vm.watermark_scale_factor=200"
    # As an older result had it: a saving that looks good under a verdict that is none.
    sure = replace(host("sure", 3.0), verdict="not known", why="too few <events>")
    calm = replace(host("calm", 3.0), verdict="change nothing")
    found = Fleet([sure, calm, host("busy", 2.0)])
    assert [each.best is None for each in found.hosts] == [True, True, False]
    text = " ".join(found.summary())
    assert "Change nothing on 1 of 3 hosts." in text
    assert "Not known on 1 of 3 hosts" in text
    assert f"On 1 host set {setting}" in text
    page = found.html()
    assert "too few &lt;events&gt;" in page
    assert page.count(f"<td>{setting}") == 2, "in its group and in the list of hosts"
    assert sorted(len(group) for group in found.clusters()) == [1, 1, 1]
    assert set(found.settings()[change]) == {"helps", "harms", "nothing", "not known"}
    pytest.importorskip("pandas", reason="SKIPPED: pandas is missing")
    assert list(found.to_pandas()["verdict"]) == ["not known", "change nothing", "worth trying"]


@pytest.mark.parametrize(
    ("verdict", "side", "best"),
    [
        ("not known", "not known", None),
        ("change nothing", "nothing", None),
        ("worth trying", "helps", "vm.watermark_scale_factor=200"),
    ],
)
def test_the_verdict_of_a_host_rules_what_its_changes_do(
    monkeypatch: pytest.MonkeyPatch, verdict: str, side: str, best: Optional[str]
) -> None:
    advice = zonal.advise(None, only=["watermark_scale_factor"])
    row = replace(
        advice.changes[0],
        change="watermark_scale_factor 200",
        setting="vm.watermark_scale_factor=200",
        command="sysctl vm.watermark_scale_factor=200",
        saving_percent_of_cpu=Saving(1.0, 9.0, 20.0),
        is_worse=False,
        same_as=[],
    )
    told = replace(
        advice,
        verdict=verdict,
        reason="because",
        setting=row.setting if verdict == "worth trying" else None,
        changes=[row],
        cost_percent_of_cpu=4.0,
        seconds=0.0,
    )
    monkeypatch.setattr(_fleet, "advise", lambda *_, **__: told)
    judged = _fleet.judge(("a.zonal", {}, [], None))
    assert (judged.verdict, judged.why) == (verdict, "because")
    assert [each.verdict for each in judged.effects] == [side]
    assert (judged.best and judged.best.setting) == best
    assert judged.effects[0].saving_percent_of_cpu == 4.0, "no more than is spent"
    # A recording of one moment has no rates, and does not end the page of the others.
    found = Fleet([judged, host("busy", 2.0)])
    assert judged.holds_per_s is None and len(found.clusters()) == 2
    assert "a.zonal" in found.html()


def test_a_host_has_the_waits_the_prices_and_the_setting_of_its_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice = zonal.advise(None, only=["watermark_scale_factor"])
    nothing, much = Saving(0.0, 0.0, 0.0), Saving(1.0, 9.0, 20.0)
    lists = replace(
        advice.changes[0],
        change="numa_stat 0",
        setting="vm.numa_stat=0",
        command="sysctl vm.numa_stat=0",
        saving_percent_of_cpu=much,
        saving_percent_of_time=nothing,
        is_worse=False,
        same_as=["another release"],
    )
    # Its processor time is of reclaim alone, so that no line is given for it.
    marks = replace(
        lists,
        change="min_free_kbytes 67584",
        setting=RESERVE,
        command=None,
        saving_percent_of_cpu=Saving(0.0, 5.0, 9.0),
        saving_percent_of_time=Saving(2.0, 5.0, 11.0),
        same_as=[],
    )
    reclaim = ReclaimCost(2.0, 0.0, 0.5, 1000, 900, Saving(2.0, 3.0, 6.0), 60.0, 2.0, 15.2, None)
    told = replace(
        advice,
        verdict="worth trying",
        setting=RESERVE,
        changes=[lists, marks],
        reclaim=reclaim,
        cost_percent_of_cpu=1.0,
        simulated=True,
    )
    monkeypatch.setattr(_fleet, "advise", lambda *_, **__: told)
    judged = _fleet.judge(("a.zonal", {}, [], None))
    assert (judged.disk_wait_percent, judged.memory_wait_percent) == (60.0, 2.0)
    assert (judged.read_gib, judged.simulated, judged.setting) == (15.2, True, RESERVE)
    assert [each.verdict for each in judged.effects] == ["helps"] * 3
    assert judged.best is not None and judged.best.setting == RESERVE
    assert judged.best_saving_percent_of_time == 5.0
    assert judged.best_saving_percent_of_cpu == 4.0, "lists and reclaim together, and no more"


def test_the_setting_of_a_real_advice_is_one_of_its_rows() -> None:
    advice = zonal.advise()
    assert (advice.setting is not None) == (advice.verdict == "worth trying")
    if advice.setting is not None:
        assert advice.reason.startswith(advice.setting)
        assert advice.setting in [row.setting for row in advice.changes]
    assert advice.recordings[0].setting == advice.setting and not advice.simulated


def test_a_name_that_is_no_utf_8_is_on_the_page_and_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bad\xff.zonal")
    path.write_bytes(b"")
    found = zonal.fleet([path], jobs=1)
    assert found.hosts[0].source == str(path)
    assert r"bad\udcff.zonal" in found.html().encode("utf-8").decode("utf-8")
    pandas = pytest.importorskip("pandas", reason="SKIPPED: pandas is missing")
    assert isinstance(found.to_pandas(), pandas.DataFrame)
    assert found.to_pandas()["source"][0].endswith(r"bad\udcff.zonal")
