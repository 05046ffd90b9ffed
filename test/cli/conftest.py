import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "model"))  # library_models.py

import harness
from small_models import reads_tokens, write_tokens

# The oracles' models are tiny, and the program they are compared with runs beside them.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return harness.write_cifar10(tmp_path_factory.mktemp("cifar10"))


@pytest.fixture(scope="session")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="session")
def data_of(data, tokens):
    """The folder that a model's runs read."""
    return lambda model: tokens if reads_tokens(model) else data
