"""The example that uses lib/ without the program: a user's own network, trained by the engine."""

import os
import re
import subprocess


def test_the_network_learns():
    output = subprocess.run([os.environ["OWN_MODEL"]], check=True, capture_output=True, text=True).stdout
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(losses) == 7
    assert losses[-1] < losses[0] / 5, output
