# The front door. Everything is built by Meson and Ninja; this file installs what is missing on Debian and
# Ubuntu, and gives the common jobs one word each.
#
#   make            build the program: build/leat
#   make demo       get the default model and generate text from it with half its size as memory
#   make check      every test that belongs before a commit (about ten minutes on two cores)
#   make check-all  also clang, the thread sanitizer, emulated processors, long fuzzing
#   make bench      Leat beside llama.cpp on the default model
#   make install    PREFIX (default /usr/local) and DESTDIR are honoured
#   make clean      remove the build folders

PYTHON ?= /usr/bin/python3
BUILD  ?= build
PREFIX ?= /usr/local
export PYTHON

.PHONY: all deps demo check check-all bench install clean

all: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD) leat

deps:
	@tools/install-deps build

$(BUILD)/build.ninja: | deps
	meson setup --prefix $(abspath $(PREFIX)) $(BUILD)

demo: all
	@tools/install-deps demo
	@BUILD=$(BUILD) tools/demo

# In a fresh tree the build itself is the one that fails on warnings; else run-checks makes another.
check check-all:
	@tools/install-deps build check $(filter check-all,$@)
	@[ -e $(BUILD)/build.ninja ] || meson setup -Dwerror=true --prefix $(abspath $(PREFIX)) $(BUILD)
	@$(PYTHON) tools/run-checks $(if $(filter check-all,$@),--all) --build $(BUILD)

bench: all
	@tools/install-deps demo check bench
	@$(PYTHON) tools/get-default-model
	@$(PYTHON) tools/bench-peers "$$($(PYTHON) tools/get-default-model --print-path)"

install: all
	@meson configure --prefix $(abspath $(PREFIX)) $(BUILD)
	meson install -C $(BUILD) --quiet

clean:
	rm -rf $(BUILD) build-asan build-tsan build-werror build-clang build-fuzz
