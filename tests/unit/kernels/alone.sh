#!/bin/sh
# Builds alone.c, statically, and says nothing:  tests/unit/kernels/alone.sh [CC] [PROGRAM]
exec ${1:-cc} -O2 -std=gnu17 -ffp-contract=off -static -o "${2:-kernels}" "$(dirname "$0")/alone.c" -lm -lpthread
