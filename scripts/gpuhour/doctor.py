"""Runs sdp-train doctor. Its checks become rows, its rates the profile that plans read."""

import json

from gpuhour.jobs import Context, Row, last_line


def examine(context: Context) -> list[Row]:
    log = context.log / "doctor.txt"
    process = context.start([context.binary, "doctor", "--device", context.device, "--output", context.scratch("doctor"),
                             "--save", context.state / "profile.json", "--json"], log=log)
    code = context.wait(process)
    text = log.read_text(errors="replace")
    if "\n{" not in text:
        raise RuntimeError(f"exit code {code}: {last_line(text)}")
    # SKIP is not a verdict; the row shows its reason.
    rows = [Row(check["check"], " ".join((check["detail"], check["advice"])).strip(), check["status"].replace("SKIP", ""))
            for check in json.loads(text[text.index("\n{"):])["checks"]]
    return rows + ([Row("exit code", str(code), "FAIL")] if code not in (0, 1) else [])
