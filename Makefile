# make setup · make demo · make test-fast · make test · make lint · make docs · make bench · make sanitize · make wheel
PYTHON ?= python3
PY := .venv/bin/python
BUILD_TOOLS := scikit-build-core nanobind ninja cmake
# the extension is rebuilt when its sources change
SOURCES := $(wildcard csrc/*) CMakeLists.txt pyproject.toml

.PHONY: setup demo test-fast test lint docs bench sanitize wheel clean

setup: .venv/installed

.venv/installed: constraints.txt $(SOURCES)
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -c constraints.txt torch numpy $(BUILD_TOOLS)
	$(PY) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[train,audit,romanize,hf,moonshine,whisper,export,datasets,shards,ray,pandas,wandb,demo,gpu,docs,dev]'
	# For a test of docs/integrations.md. Of all that ESPnet asks for, its CTC module needs typeguard alone.
	$(PY) -m pip install --quiet --no-deps espnet==202511 typeguard
	touch $@

# DEMO=small is done in two minutes. It fails if suspicious words are not found at five times chance.
DEMO ?= full
demo: setup
	.venv/bin/wildctc demo --size $(DEMO)

# A process for each core. Each computes with one thread; tests about threads set their own number.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal

# What takes under 90 seconds on two cores: all but the tests marked slow.
test-fast: setup
	$(PYTEST) -q -rfE --durations 5 -m "not slow"

# Everything. The slowest tests are listed at the end.
test: setup
	$(PYTEST)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The documentation site in build/site. A broken link, or a page that is not in mkdocs.yml, fails.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

bench: setup
	$(PY) benchmarks/loss.py
	$(PY) benchmarks/encoders.py
	$(PY) benchmarks/decoding.py
	$(PY) benchmarks/probe.py

# The golden and edge cases under AddressSanitizer and UBSan. Python itself leaks at exit, so leaks are not looked for.
sanitize: setup
	rm -rf build/sanitize && mkdir -p build/sanitize
	cmake -S . -B build/sanitize -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DWILDCTC_SANITIZE=ON \
		-DPython_EXECUTABLE=$(CURDIR)/$(PY)
	cmake --build build/sanitize
	ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		WILDCTC_NATIVE=build/sanitize $(PY) -m pytest -q -p no:cacheprovider tests/lattice/test_golden_k2.py \
		tests/lattice/test_edge_cases.py tests/lattice/test_bad_input.py tests/lattice/test_native_equals_reference.py \
		tests/lattice/test_masked_logits.py tests/lattice/test_alignment.py tests/lattice/test_budget.py \
		tests/lattice/test_graph_brute_force.py tests/lattice/test_graph_native.py

# The sdist, from it the wheel of this Python, and that wheel where no compiler is found: dist/ and build/wheel.
wheel: setup
	rm -rf dist build/wheel && mkdir -p dist build/wheel
	$(PY) -m pip install --quiet build
	$(PY) -m build --no-isolation --sdist -o dist .
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation -w dist dist/wildctc-*.tar.gz
	$(PY) -m venv build/wheel
	PATH=build/wheel/bin build/wheel/bin/python -m pip install --quiet -c constraints.txt torch dist/wildctc-*.whl
	PATH=build/wheel/bin build/wheel/bin/python -I tests/installed.py

clean:
	rm -rf .venv build
