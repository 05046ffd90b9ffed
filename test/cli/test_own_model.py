"""The examples that use lib/ without the program: users' own networks, trained by the engine."""

import os
import pathlib
import re
import subprocess


def test_the_network_learns():
    output = subprocess.run([os.environ["OWN_MODEL"]], check=True, capture_output=True, text=True).stdout
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(losses) == 7
    assert losses[-1] < losses[0] / 5, output


def test_a_convolutional_network_learns_and_continues_from_its_checkpoint(tmp_path):
    root = pathlib.Path(__file__).parents[2]

    def train(checkpoint, steps):
        command = [os.environ["OWN_CONVNET"], str(tmp_path / checkpoint), str(steps)]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout.splitlines()

    whole = train("whole", 30)
    losses = [float(line.split()[-1]) for line in whole if line.startswith("step")]
    accuracy = float(whole[-1].split()[-1])
    assert losses[-1] < losses[0] - 0.3 and accuracy > 0.2, whole  # chance: 0.1
    train("parts", 12)
    assert train("parts", 30)[-2:] == whole[-2:]  # the last loss and the accuracy
