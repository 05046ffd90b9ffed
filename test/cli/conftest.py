import pytest

import harness


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return harness.write_cifar10(tmp_path_factory.mktemp("cifar10"))
