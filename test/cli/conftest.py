import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "model"))  # library_models.py

import harness

# The oracles' models are tiny, and the program they are compared with runs beside them.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return harness.write_cifar10(tmp_path_factory.mktemp("cifar10"))
