// What follows from the parameters of a kind of macro: the lanes of an array, and their order.
localparam int LANES = WEIGHTS * SLICES;                  // columns of weights that are converted
localparam int CONVERTED = LANES + 32'(UNIT_COLUMN);      // and the unit column, lane LANES
localparam int REFERENCES = SLICES + 32'(UNIT_COLUMN);    // converters with references of their own
localparam int LINE = (LANES + BESIDE) * CELLS * CELL_BITS; // bits of a word line

// The lanes of a digit, one per polarity, are adjacent. Slices are numbered positive lane first.
function automatic int polarity_of(input int place);
    polarity_of = NEGATIVE_FIRST ? POLARITIES - 1 - place % POLARITIES : place % POLARITIES;
endfunction
function automatic int lane_of(input int weight, input int slice);
    lane_of = (SLICE_MAJOR ? slice / POLARITIES * WEIGHTS + weight : weight * (SLICES / POLARITIES) + slice / POLARITIES)
            * POLARITIES + polarity_of(slice);
endfunction
// The slice of a lane, whose converter's references it has; of the unit column SLICES.
function automatic int slice_of(input int lane);
    if (lane == LANES) slice_of = SLICES;
    else slice_of = (SLICE_MAJOR ? lane / (WEIGHTS * POLARITIES) : lane % SLICES / POLARITIES) * POLARITIES
                  + polarity_of(lane);
endfunction
