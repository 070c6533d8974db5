"""Here for pytest to find what the tests of all folders share."""
