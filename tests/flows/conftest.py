"""The command line validates as on a calibrated machine."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _calibrated(calibrated_here: object) -> None:
    pass
