# Two commands do everything on a fresh machine with Python 3.11 or later, pip and make:
#   make demo         runs a sweep on the embedded data set and prints its leaderboard
#   make test         runs the tests
# One more needs a C compiler:
#   make pretended    runs the tests for a GPU on a pretended one
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test pretended lint perf clean

demo: $(READY)
	$(BIN)/python -m bench.sweep --config docs/demo.toml

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

pretended: $(READY)
	$(BIN)/python tests/pretended -q -n 2

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

perf: $(READY)
	$(BIN)/python -m bench.perf

# Torch and torchvision come as a pair from the package index: torchvision's wheel needs the torch that it was built for.
$(READY): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache *.egg-info
