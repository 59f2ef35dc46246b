#!/bin/sh
# Builds the kernel tests without meson, cmocka or any library, for emulated and foreign processors:
#
#     tests/unit/kernels/alone.sh [CC] [FOLDER]
#
# CC (default cc) may be a cross compiler; FOLDER (default ./alone) receives static programs, to be
# run from the source root: qemu-aarch64 alone/test_matmul, qemu-x86_64 -cpu qemu64 alone/test_formats.
set -e
cc=${1:-cc}
out=${2:-alone}
src=$(dirname "$0")/../../../src/kernels
tests=$(dirname "$0")
mkdir -p "$out"
flags="-std=gnu17 -O3 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -DKERNELS_ALONE"
wide=
objects=
compile() { # file, flags
    $cc $flags $2 -c "$src/$1.c" -o "$out/$1.o"
    objects="$objects $out/$1.o"
}
case $($cc -dumpmachine) in
x86_64*)
    avx2="-mavx2 -mfma -mf16c"
    avx512="$avx2 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni"
    for f in act_avx2 matmul_avx2 matmul_float_avx2 ops_avx2 ops_attn_avx2; do compile $f "$avx2"; done
    for f in matmul_avx512 ops_avx512 ops_attn_avx512; do compile $f "$avx512"; done
    compile matmul_avxvnni "$avx2 -mavxvnni"
    wide="-DKERNELS_HAVE_AVX2 -DKERNELS_HAVE_AVXVNNI -DKERNELS_HAVE_AVX512"
    ;;
aarch64*)
    compile matmul_neon "-march=armv8.2-a+dotprod"
    $cc $flags -march=armv8.2-a+dotprod+i8mm -DKERNELS_I8MM -c "$src/matmul_neon.c" -o "$out/matmul_i8mm.o"
    objects="$objects $out/matmul_i8mm.o"
    wide="-DKERNELS_HAVE_NEON"
    ;;
esac
for f in act_scalar format format_unpack half kernels_select matmul_scalar ops_scalar ops_attn_scalar; do
    compile $f "$wide"
done
for t in formats matmul; do
    $cc $flags -O1 "$tests/test_$t.c" $objects -static -lm -lpthread -o "$out/test_$t"
done
