"""Module paths of the PyPI package's compiled part; the code here is numpy and numba."""
