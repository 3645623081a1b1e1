# make help shows what there is. Only Python >= 3.11 is needed; everything else goes into .venv and .makegood.
SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.PHONY: help up down reset status doctor test lint bench lock

PYTHON ?=
ARGS ?=
# Whole files go to one worker, so that what a file sets up is set up once. WORKERS= runs them one by one.
WORKERS ?= --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# Installs one lock and the project itself into .venv. The file .installing is there for as long as that takes:
# when it is found with no living owner, the last attempt was killed midway and .venv is made from nothing.
# pip's or uv's words go to a log, which is shown when something fails. uv is quicker, pip is always there.
define install
@set -eu; \
venv=.venv; busy=$$venv/.installing; log=$$venv/install.log; begun=$$(date +%s); \
say() { printf '%s\n' "$$*" >&2; }; \
fail() { say "error: $$1"; shift; for line in "$$@"; do say "       $$line"; done; exit 1; }; \
good() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
alive() { kill -0 "$$1" 2>/dev/null && ! grep -qs '^State:.*Z' "/proc/$$1/status"; }; \
try() { { echo "+ $$*"; "$$@"; } >>"$$log" 2>&1; }; \
if [ -e $$busy ]; then \
  owner=$$(cat $$busy); \
  if alive "$$owner"; then \
    fail "another make (process $$owner) is installing into .venv" \
      "Wait for it to end. If that process is something else, remove $$busy."; \
  fi; \
  say "- the last installation did not end; starting over"; rm -rf $$venv; \
fi; \
if ! good $$venv/bin/python; then \
  python=; \
  for name in $(PYTHON) python3.13 python3.12 python3.11 python3 python; do \
    if good "$$name"; then python=$$name; break; fi; \
  done; \
  [ -n "$$python" ] || fail "Python 3.11 or newer was not found" \
    "Install it, or name it: make $@ PYTHON=/path/to/python3.11"; \
  rm -rf $$venv; mkdir $$venv; echo $$$$ >$$busy; \
  say "- making .venv with $$($$python --version)"; \
  if "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
    try "$$python" -m venv $$venv || { tail -n 20 $$log >&2; fail ".venv could not be made" "See $$log."; }; \
  elif ! command -v uv >/dev/null || ! try uv venv --allow-existing --python "$$python" $$venv; then \
    fail "$$python has no venv module" "Debian and Ubuntu: apt install python3-venv"; \
  fi; \
fi; \
echo $$$$ >$$busy; rm -f $$venv/.installed $$venv/.installed-dev; : >$$log; \
uv=; \
if command -v uv >/dev/null; then uv=uv; \
elif [ -x $$venv/bin/uv ] || try $$venv/bin/python -m pip install --quiet uv; then uv=$$venv/bin/uv; fi; \
with_uv() { [ -n "$$uv" ] && try "$$uv" pip install --python $$venv/bin/python "$$@"; }; \
with_pip() { \
  $$venv/bin/python -c 'import pip' 2>/dev/null || try $$venv/bin/python -m ensurepip; \
  try $$venv/bin/python -m pip install --disable-pip-version-check --no-input "$$@"; \
}; \
add() { with_uv "$$@" || with_pip "$$@"; }; \
say "- installing $$(grep -c '^[a-zA-Z0-9].*==' $(1)) packages from $(1)"; \
if add --require-hashes -r $(1) && add --no-deps --no-build-isolation -e .; then \
  rm $$busy; say "- installed in $$(($$(date +%s) - begun)) s"; \
else \
  tail -n 25 $$log >&2; fail "the installation failed" "The whole log is $$log. Once mended, run it again."; \
fi
endef

.venv/.installed: requirements.txt pyproject.toml
	$(call install,requirements.txt)
	@touch $@

# The development lock holds all of the other one.
.venv/.installed-dev: requirements-dev.txt pyproject.toml
	$(call install,requirements-dev.txt)
	@touch .venv/.installed $@

help: ## Show this
	@echo "makegood: finds orders stuck between two steps and makes them good"; echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile
	@echo; echo "  ARGS=... goes to the command, as in: make test ARGS='-k postgres'"

up: .venv/.installed ## Set up and start everything; a second time, say what runs
	@.venv/bin/makegood up $(ARGS)

down: ## Stop everything, keep the data
	@if [ -x .venv/bin/makegood ]; then .venv/bin/makegood down $(ARGS); else echo "Nothing is running."; fi

reset: .venv/.installed ## Ask, then stop everything and delete the data
	@.venv/bin/makegood reset $(ARGS)

status: .venv/.installed ## Show what is running and where
	@.venv/bin/makegood status $(ARGS)

doctor: .venv/.installed ## Look at everything and say what to do
	@.venv/bin/makegood doctor $(ARGS)

test: .venv/.installed-dev ## Run the tests
	@.venv/bin/pytest $(WORKERS) $(ARGS)

lint: .venv/.installed-dev ## Check style, types and which part may import which
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports

bench: .venv/.installed ## Measure everything next to what you would pick instead
	@missed=0; for what in engine recovery reconcile dashboard; do \
	  .venv/bin/makegood bench $$what $(ARGS) || missed=$$?; \
	done; exit $$missed

# One lock for every system and every Python from 3.11; no index address in it. ARGS=--upgrade takes what is new.
lock: .venv/.installed ## Resolve requirements.txt and requirements-dev.txt anew
	@uv=$$(command -v uv || echo .venv/bin/uv); \
	[ -x "$$uv" ] || .venv/bin/python -m pip install --quiet uv; \
	compile="pip compile --quiet pyproject.toml --universal --python-version 3.11 --generate-hashes"; \
	compile="$$compile --no-emit-index-url --no-header"; \
	"$$uv" $$compile -o requirements.txt $(ARGS) && \
	"$$uv" $$compile --extra dev -c requirements.txt -o requirements-dev.txt $(ARGS)
