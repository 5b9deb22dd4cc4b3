    // A column by itself. Its cells and digits make every sum in directed/: both sides of every
    // threshold of a layer's converters. FULL rows hold the largest cells, row 0 the remainder of a
    // sum; EMPTY rows hold erased cells, which leak.
    localparam int MOST_CELL = (1 << CELL_BITS) - 1, MOST_DIGIT = (1 << DIGIT_BITS) - 1;
    localparam int FULL = (1 << (SUM_BITS - 1 - FRACTION_BITS)) / MOST_CELL / MOST_DIGIT + 1;
    localparam int EMPTY = (LEAK > 0) ? ROWS : 0;
    localparam int LONE = 1 + FULL + EMPTY;

    logic lone_write = 1'b0;
    logic [$clog2(LONE)-1:0] lone_row = '0;
    logic [CELLS*CELL_BITS-1:0] lone_cells = '0;
    logic [DIGIT_BITS*LONE-1:0] lone_drive = '0;
    logic lone_negative = 1'b0;
    logic [STEP_BITS-1:0] lone_step = '0;
    logic signed [FINE_BITS-1:0] lone_offset = '0;
    logic [THRESHOLDS*FINE_BITS-1:0] lone_thresholds = '0;
    logic signed [SUM_BITS-1:0] lone_sum;
    logic signed [CODE_BITS-1:0] lone_code;
    cim_column #(
        .ROWS(LONE), .CELLS(CELLS), .CELL_BITS(CELL_BITS), .DIGIT_BITS(DIGIT_BITS), .SUM_BITS(SUM_BITS),
        .FRACTION_BITS(FRACTION_BITS), .LEAK(LEAK), .CONVERTER(CONVERTER), .ROUNDING(ROUNDING),
        .REFERENCE_BITS(REFERENCE_BITS), .STEP_BITS(STEP_BITS), .FINE_BITS(FINE_BITS), .CODE_BITS(CODE_BITS),
        .THRESHOLDS(THRESHOLDS)
    ) lone (
        .clk, .write(lone_write), .write_row(lone_row), .write_cells(lone_cells), .drive(lone_drive),
        .negative({LONE{lone_negative}}), .baseline({SUM_BITS{1'b0}}), .step(lone_step), .offset(lone_offset), .lo, .hi,
        .thresholds(lone_thresholds), .sum(lone_sum), .code(lone_code)
    );

    // The cells of a value, in the second cell of a pair if `second`.
    function automatic logic [CELLS*CELL_BITS-1:0] lone_value(input int cell_value, input logic second);
        lone_value = (CELLS*CELL_BITS)'(cell_value);
        if (second) lone_value = lone_value << ((CELLS - 1) * CELL_BITS);
    endfunction

    task automatic program_lone(input logic second);
        for (int r = 0; r < LONE; r++) begin
            @(negedge clk);
            lone_write = 1'b1; lone_row = $clog2(LONE)'(r);
            lone_cells = lone_value((r > 0 && r <= FULL) ? MOST_CELL : 0, second);
        end
    endtask

    // Digits that add up to `total` on the rows from `from`: the largest first, then the remainder.
    function automatic logic [LONE-1:0] lone_plane(input int total, input int from, input int plane);
        logic [LONE-1:0] rows, row;
        int rest;
        rest = (total % MOST_DIGIT) >> plane;
        rows = {LONE{1'b1}} >> (LONE - total / MOST_DIGIT);
        row = {{LONE-1{1'b0}}, rest[0]};
        lone_plane = (rows | row << (total / MOST_DIGIT)) << from;
    endfunction

    task automatic direct_converter;
        int lines, taken, slice, turn, cells_sum, digits_sum, sum_wanted, code_wanted, largest, left, place;
        longint taken_off;
        logic second, was_second;
        lines = $fopen({handoff, "/directed/", name, "/converter.txt"}, "r");
        if (lines == 0) $fatal(1, "FAIL: no %s/directed/%s/converter.txt", handoff, name);
        was_second = 1'b0;
        program_lone(1'b0);
        taken = $fscanf(lines, "%d %d %d %d", slice, turn, taken_off, cells_sum);
        while (taken == 4) begin
            taken = $fscanf(lines, "%d %d %d", digits_sum, sum_wanted, code_wanted);
            if (taken != 3) $fatal(1, "FAIL: directed/%s/converter.txt ends within a line", name);
            second = CELLS == 2 && cells_sum < 0;
            if (second != was_second) program_lone(second);
            was_second = second;
            lone_negative = digits_sum < 0;
            if (cells_sum < 0) cells_sum = -cells_sum;
            if (digits_sum < 0) digits_sum = -digits_sum;
            largest = cells_sum / MOST_CELL;
            left = cells_sum % MOST_CELL;
            @(negedge clk);
            lone_write = 1'b1; lone_row = '0; lone_cells = lone_value(left, second);
            for (int p = 0; p < DIGIT_BITS; p++)
                lone_drive[p*LONE +: LONE] = LONE'(p == 0 && left > 0) | lone_plane(largest, 1, p)
                    | lone_plane(digits_sum - largest - ((left > 0) ? 1 : 0), 1 + FULL, p);
            place = turn * REFERENCES + slice;
            lone_step = steps[place*STEP_BITS +: STEP_BITS];
            lone_thresholds = all_thresholds[place*THRESHOLDS*FINE_BITS +: THRESHOLDS*FINE_BITS];
            lone_offset = FINE_BITS'(taken_off);
            @(negedge clk);
            lone_write = 1'b0;
            count(7, 64'd1, (32'(lone_sum) === sum_wanted && 32'(lone_code) === code_wanted) ? 64'd0 : 64'd1);
            taken = $fscanf(lines, "%d %d %d %d", slice, turn, taken_off, cells_sum);
        end
        if (taken > 0) $fatal(1, "FAIL: directed/%s/converter.txt ends within a line", name);
        $fclose(lines);
    endtask

