"""sdp-train doctor, whose findings become rows and whose rates become the profile that plans read."""

import json

from gpuhour.jobs import Context, Job, Row


def examine(context: Context) -> list[Row]:
    log = context.log / "doctor.txt"
    process = context.start([context.binary, "doctor", "--device", context.device, "--data", context.home / "pack" / "images",
                             "--run", context.scratch("doctor"), "--save", context.state / "profile.json", "--json"], log=log)
    code = context.wait(process)
    text = log.read_text(errors="replace")
    findings = json.loads(text[text.index("\n{"):])["findings"]
    rows = [Row(finding["check"], finding["detail"], {"pass": "PASS", "fail": "FAIL"}.get(finding["status"].lower(), ""))
            for finding in findings]
    return rows + ([Row("exit code", str(code), "FAIL")] if code not in (0, 1) else [])


def jobs(device: str) -> list[Job]:
    return [Job("doctor", "one process per device", 60, 120, examine)]
