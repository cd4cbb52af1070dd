# These commands do everything on a fresh machine with Python 3.11 or later, pip and make:
#   make demo         runs a sweep on the embedded data set and prints its leaderboard
#   make test         runs the tests but the slow ones, some five minutes
#   make test-slow    runs the slow ones, among them all of `bench.selftest --all`
#   make docs         builds the documents as a site to search, in build/site
# One compares runs with those of other libraries, which it installs:
#   make peers        fluke and Flower (docs/agreement.md)
# One more needs a C compiler:
#   make pretended    runs the tests for a GPU on a pretended one
# And for who changes the code:
#   make weight       how dense the code is, and how many ideas it has (docs/design.md)
#   make mutants      draws 60 small faults of the product and counts those that tests notice (an hour)
#   make chaos        kills sweeps, damages what they stored, gives commands strangers' folders (five minutes)
PYTHON ?= $(shell command -v python3.11 || command -v python3)
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
READY := .venv/ready
PEERS := .venv-peers
SITE := .venv/site-ready

.PHONY: demo test test-slow docs peers pretended lint perf weight mutants chaos clean

demo: $(READY)
	$(BIN)/python -m bench.sweep --config docs/demo.toml

test: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

docs: $(SITE) build/certificates.json
	$(BIN)/python docs/site_pages.py build/certificates.json build/pages
	$(BIN)/zensical build --strict --clean > build/site.log 2>&1 || { cat build/site.log; exit 1; }
	! grep '^griffe' build/site.log
	@echo "The site is build/site/index.html. To search it: $(BIN)/python -m http.server -d build/site"

# They take some four minutes, so they are measured again only after a change of the code.
build/certificates.json: $(READY) $(shell find algorithms bench search_spaces -name '*.py')
	mkdir -p build
	$(BIN)/python -m bench.selftest --all --json > $@.new
	mv $@.new $@

peers: $(PEERS)/ready
	$(PEERS)/bin/python -m pytest -q tests/bench/engine/test_peers.py

pretended: $(READY)
	$(BIN)/python tests/pretended -q -n 2

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

perf: $(READY)
	$(BIN)/python -m bench.perf

weight: $(READY)
	$(BIN)/python tests/weight.py

mutants: $(READY)
	$(BIN)/python tests/mutants.py --seed $(or $(SEED),0)

chaos: $(READY)
	$(BIN)/python tests/chaos.py

# Torch and torchvision come as a pair from the package index: torchvision's wheel needs the torch that it was built for.
$(READY): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $(READY)

$(SITE): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	touch $(SITE)

# An environment of their own, because they ask for other versions than ours; a .pth file lends it .venv's torch.
$(PEERS)/ready: $(READY) requirements-peers.txt
	$(BIN)/python -m venv --clear $(PEERS)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$(echo $(PEERS)/lib/python3*/site-packages)/venv.pth
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts -r requirements-peers.txt
	touch $(PEERS)/ready

clean:
	rm -rf .venv $(PEERS) build demo .pytest_cache .mypy_cache .ruff_cache *.egg-info
