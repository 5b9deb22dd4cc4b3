#!/bin/sh
# Synthesises what stands behind the converters of a layer's array with Yosys, from a hand-off's folder:
#
#   LAYER=text.fc1 LIBERTY=cells.lib sh sv/synth.sh
#
# LAYER is the first of steps.txt if it is not given. Without LIBERTY, a library of cells, gates are generic.
set -eu
export LC_ALL=C
built=build/synth
mkdir -p "$built"

say() { printf 'sv/synth.sh: %s\n' "$1" >&2; }
command -v yosys > "$built/found" || { say "yosys is not installed"; exit 1; }
layer=${LAYER:-$(awk '$1 == "layer" { print $2; exit }' steps.txt)}
kind=$(awk -v layer="$layer" '$1 == "layer" && $2 == layer { print "kind" $3 }' steps.txt)
[ -n "$kind" ] || { say "LAYER: $layer: no such layer; expected one of $(awk '$1 == "layer" { printf "%s%s", comma, $2; comma = ", " }' steps.txt)"; exit 2; }
liberty=${LIBERTY:-}
[ -z "$liberty" ] || [ -f "$liberty" ] || { say "LIBERTY: $liberty: no such file; expected an absolute path, or one from the hand-off's folder"; exit 2; }

# Yosys reads no import: the content of the package stands outside of modules.
sed -e '/^package cim;$/d' -e '/^endpackage$/d' "sv/$kind/parameters.svh" > "$built/parameters.sv"
for module in cim_macro cim_layer; do
    sed 's/ import cim::\*;//' "sv/$module.sv" > "$built/$module.sv"
done

# The settings of the layer, from its lines in steps.txt. Of lists the first element is the lowest.
steps="constants/$layer/steps.hex"
[ -f "$steps" ] || steps=
awk -v layer="$layer" '
    function list(name, bits, all) { printf "localparam logic [%s-1:0] %s = {%s};\n", bits, name, all }
    FILENAME != "steps.txt" { step = "STEP_BITS'\''(64'\''h" $1 ")" (step == "" ? "" : ", ") step; next }
    $2 != layer { next }
    $1 == "layer" { cycles = $9 }
    $1 == "cells" { complement = $8; offset = $9; flags = $12 }
    $1 == "inputs" { addend = $4; magnitude = $5 }
    $1 == "converter" { lo = $4 }
    $1 == "slice" {
        shift = "6'\''d" $4 (shift == "" ? "" : ", ") shift
        sign = "1'\''b" ($5 < 0) (sign == "" ? "" : ", ") sign
        factor = "16'\''d" $7 (factor == "" ? "" : ", ") factor
    }
    $1 == "cycle" {
        from = "5'\''d" $4 (from == "" ? "" : ", ") from
        bits = "5'\''d" $5 (bits == "" ? "" : ", ") bits
        down = "1'\''b" ($6 < 0) (down == "" ? "" : ", ") down
    }
    END {
        printf "localparam bit FLAGS = %d, SIGN_MAGNITUDE = %d;\n", flags, magnitude
        printf "localparam logic signed [INPUT_BITS:0] LIFT = %d;\n", addend
        printf "localparam logic signed [CODE_BITS-1:0] LOWEST = %d;\n", lo
        printf "localparam logic signed [ACC_BITS-1:0] COMPLEMENT = %d, WEIGHT_OFFSET = %d;\n", complement, offset
        printf "localparam logic [5:0] USED_CYCLES = %d;\n", cycles
        list("CYCLE_SHIFT", "CYCLES*5", from)
        list("CYCLE_BITS", "CYCLES*5", bits)
        list("CYCLE_NEGATIVE", "CYCLES", down)
        list("SLICE_SHIFT", "SLICES*6", shift)
        list("SLICE_NEGATIVE", "SLICES", sign)
        list("SLICE_FACTOR", "SLICES*16", factor)
        list("STEP", "REFERENCES*STEP_BITS", step == "" ? "1'\''b0" : step)
    }' steps.txt $steps > "$built/settings.svh"

# synthesise MODULE: prints its cells, their area and its longest path.
synthesise() {
    {
        # Names outside of modules hide parameters of the modules that follow: cim_output has its own.
        printf 'read_verilog -sv -Isv -I%s' "$built"
        printf ' %s' sv/cim_output.sv "$built/parameters.sv" "$built/cim_macro.sv" "$built/cim_layer.sv"
        printf '\nsynth -flatten -top %s\n' "$1"
        if [ -n "$liberty" ]; then
            printf 'dfflibmap -liberty %s\n' "$liberty"
            printf 'abc -liberty %s -script +strash;ifraig;scorr;dc2;dch,-f;map;buffer;upsize;dnsize;stime,-p\n' "$liberty"
            printf 'opt_clean\ntee -o %s/%s.txt stat -liberty %s\n' "$built" "$1" "$liberty"
        else
            printf 'abc -g AND,OR,XOR,MUX -script +strash;ifraig;scorr;dc2;dch,-f;map;print_stats\nopt_clean\ntee -o %s/%s.txt stat\n' "$built" "$1"
        fi
    } > "$built/$1.ys"
    yosys "$built/$1.ys" > "$built/$1.log" 2>&1 || { tail -n 5 "$built/$1.log" >&2; exit 1; }
    cells=$(sed -n 's/^ *Number of cells: *\([0-9]*\)$/\1/p' "$built/$1.txt" | tail -n 1)
    flops=$(awk '$1 ~ /DFF/ && $2 ~ /^[0-9]+$/ { n += $2 } END { print n + 0 }' "$built/$1.txt")
    if [ -n "$liberty" ]; then
        area=$(sed -n 's/^ *Chip area for .*: \([0-9]*\).*/\1/p' "$built/$1.txt" | tail -n 1)
        path=$(sed -n 's/^ABC: .*Delay = *\([0-9]*\).* ps.*/\1/p' "$built/$1.log" | tail -n 1)
        printf '%s: %s cells, %s of them flip-flops, area %s, longest path %s ps\n' "$1" "$cells" "$flops" "$area" "$path"
    else
        path=$(sed -n 's/^ABC: .* lev = *\([0-9]*\).*/\1/p' "$built/$1.log" | tail -n 1)
        printf '%s: %s gates, %s of them flip-flops, longest path %s gates\n' "$1" "$cells" "$flops" "$path"
    fi
}

printf '%s (%s), %s\n' "$layer" "$kind" "${liberty:-generic gates}"
synthesise cim_layer
synthesise cim_layer_output
