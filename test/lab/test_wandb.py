"""`report --wandb`: what W&B reads from the file is what metrics.jsonl and spec.yaml say."""

import json
import struct
from pathlib import Path

from sdp_lab import report
from sdp_lab.runs import find
from small_runs import write_run
from wandb.proto import wandb_internal_pb2


def records(file):
    """Of a LevelDB log with a header of 7 bytes: blocks of 32 KiB, each piece with CRC, size and kind."""
    content = file.read_bytes()
    at, record = 7, b""
    while at + 7 <= len(content):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        begins, ends = kind in (1, 2), kind in (1, 4)
        record = (b"" if begins else record) + content[at + 7 : at + 7 + size]
        at += 7 + size
        if ends:
            yield wandb_internal_pb2.Record.FromString(record)


def test_a_run_in_the_offline_format(tmp_path):
    write_run(tmp_path / "run")
    assert report.main([str(tmp_path / "run"), "--wandb", str(tmp_path / "out")]) == 0
    (file,) = (tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb")
    logged, config = {}, {}
    for record in records(Path(file)):
        values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        if "_step" in values:
            logged.setdefault(values["_step"], {}).update(values)
        config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
    (run,) = find([tmp_path / "run"]).runs
    lines = run.train + run.evals
    assert set(logged) == {line["step"] for line in lines}
    for line in lines:
        assert logged[line["step"]][f"{line['kind']}/loss"] == line["loss"]
    assert (config["optimizer.lr"], config["subnetwork.masking"]) == (run.value("optimizer.lr"), "forward")
