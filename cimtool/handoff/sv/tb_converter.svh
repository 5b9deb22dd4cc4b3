    // Directed sums: the cells of all lanes and the digits make every sum in directed/, on both sides of
    // every threshold of a layer's converters. The first rows hold the largest cells, row 0 the
    // remainder of a sum; the last rows hold erased cells, which leak.
    localparam int MOST_CELL = (1 << CELL_BITS) - 1, HALF_CELL = 1 << (CELL_BITS - 1), MOST_DIGIT = (1 << DIGIT_BITS) - 1;

    // Beside the cells of weights, one each.
    localparam int UNIT_CELL = UNIT_COLUMN ? LANES*CELLS*CELL_BITS : 0;
    localparam int REFERENCE_CELL = REFERENCE_COLUMN ? (LANES + 32'(UNIT_COLUMN))*CELLS*CELL_BITS : 0;

    int direct_full = 0;              // rows that hold the largest cells
    int cell_first = -1, cell_of = 0; // what row 0 and these rows hold; -1: not known
    logic cell_second = 1'b0, cell_negative = 1'b0;

    // A word line whose cells hold a number: negative ones in the second cells of pairs, in the
    // reference column, or as two's complement.
    function automatic logic [LINE-1:0] direct_line(input int held, input logic second, input logic below);
        logic [CELL_BITS-1:0] bits;
        direct_line = '0;
        for (int j = 0; j < CONVERTED; j++) begin
            bits = CELL_BITS'((below && !REFERENCE_COLUMN && !second) ? -held : held);
            if (j == LANES) direct_line[UNIT_CELL +: CELL_BITS] = CELL_BITS'(held);
            else if (!(below && REFERENCE_COLUMN)) direct_line[(j*CELLS + ((CELLS == 2 && second != NEGATIVE_FIRST) ? 1 : 0))*CELL_BITS +: CELL_BITS] = bits;
        end
        if (below && REFERENCE_COLUMN) direct_line[REFERENCE_CELL +: CELL_BITS] = CELL_BITS'(held);
    endfunction

    // Digits that add up to `total` on the rows from `from`: the largest first, then the remainder.
    function automatic logic [ROWS-1:0] direct_plane(input int total, input int from, input int plane);
        logic [ROWS:0] rows, row;
        int rest;
        rest = (total % MOST_DIGIT) >> plane;
        rows = ({{ROWS{1'b0}}, 1'b1} << (total / MOST_DIGIT)) - {{ROWS{1'b0}}, 1'b1};
        row = {{ROWS{1'b0}}, rest[0]};
        direct_plane = ROWS'((rows | row << (total / MOST_DIGIT)) << from);
    endfunction

    function automatic int rows_for(input int total);
        rows_for = (total + MOST_DIGIT - 1) / MOST_DIGIT;
    endfunction

    task automatic direct_converter(input int wanted);
        int lines, had, taken, slice, turn, cells_sum, digits_sum, sum_wanted, code_wanted, largest, left, unit, extra, full;
        longint taken_off;
        logic second, below, is_signed;
        lines = $fopen({handoff, "/directed/", name, "/converter.txt"}, "r");
        if (lines == 0) $fatal(1, "FAIL: no %s/directed/%s/converter.txt", handoff, name);
        cell_of = -1;
        direct = 1'b1;
        had = 0;
        taken = $fscanf(lines, "%d %d %d %d", slice, turn, taken_off, cells_sum);
        while (taken == 4) begin
            had = had + 1;
            taken = $fscanf(lines, "%d %d %d", digits_sum, sum_wanted, code_wanted);
            if (taken != 3) $fatal(1, "FAIL: directed/%s/converter.txt ends within a line", name);
            is_signed = slice < SLICES && SIGNED_CELLS[slice % SLICES];
            second = CELLS == 2 && cells_sum < 0;
            below = cells_sum < 0 && (second || is_signed || (REFERENCE_COLUMN && slice < SLICES));
            direct_negative = (digits_sum < 0 && !below) ? '1 : '0;
            if (cells_sum < 0) cells_sum = -cells_sum;
            if (digits_sum < 0) digits_sum = -digits_sum;
            unit = !is_signed ? MOST_CELL : below ? HALF_CELL : HALF_CELL - 1;
            if (unit == 0) begin
                // A cell of one bit holds -1 or 0: what it adds is negative where the digit is.
                below = 1'b1; unit = 1; direct_negative = '1;
            end
            largest = cells_sum / unit;
            left = cells_sum % unit;
            extra = (left > 0) ? 1 : 0;
            digits_sum = (LEAK > 0) ? digits_sum - largest - extra : 0;
            full = extra + rows_for(largest);
            if (full + rows_for(digits_sum) > ROWS) $fatal(1, "FAIL: directed/%s/converter.txt: more than %0d rows", name, ROWS);
            program_direct(full, ROWS - rows_for(digits_sum), (left > 0) ? left : unit, unit, second, below);
            for (int p = 0; p < DIGIT_BITS; p++)
                direct_drive[p*ROWS +: ROWS] = ROWS'(p == 0 && left > 0) | direct_plane(largest, extra, p)
                    | ((digits_sum > 0) ? direct_plane(digits_sum, direct_full, p) : '0);
            ask($sformatf("directed/%s/converter.txt, sum %0d of slice %0d", name, sum_wanted, slice), slice, turn, taken_off,
                sum_wanted, code_wanted);
            taken = $fscanf(lines, "%d %d %d %d", slice, turn, taken_off, cells_sum);
        end
        if (taken > 0) $fatal(1, "FAIL: directed/%s/converter.txt ends within a line", name);
        if (had != wanted) $fatal(1, "FAIL: directed/%s/converter.txt has %0d lines; expected %0d (steps.txt)", name, had, wanted);
        $fclose(lines);
        direct = 1'b0;
    endtask

    // Every number of rows that conduct, in each bit of the cells.
    task automatic direct_counts(input int wanted);
        int lines, had, taken, slice, turn, cell_held, rows, sum_wanted, code_wanted;
        longint taken_off;
        lines = $fopen({handoff, "/directed/", name, "/counts.txt"}, "r");
        if (lines == 0) $fatal(1, "FAIL: no %s/directed/%s/counts.txt", handoff, name);
        cell_of = -1;
        direct = 1'b1;
        direct_negative = '0;
        had = 0;
        taken = $fscanf(lines, "%d %d %d %d %d %d %d", slice, turn, taken_off, cell_held, rows, sum_wanted, code_wanted);
        while (taken == 7) begin
            had = had + 1;
            if (cell_held < 0) program_direct(rows, ROWS, -cell_held, -cell_held, 1'b1, 1'b0);
            else program_direct(rows, ROWS, cell_held, cell_held, 1'b0, 1'b0);
            direct_drive = '0;
            for (int r = 0; r < rows; r++) direct_drive[r] = 1'b1;
            ask($sformatf("directed/%s/counts.txt, %0d rows of slice %0d", name, rows, slice), slice, turn, taken_off, sum_wanted,
                code_wanted);
            taken = $fscanf(lines, "%d %d %d %d %d %d %d", slice, turn, taken_off, cell_held, rows, sum_wanted, code_wanted);
        end
        if (taken > 0) $fatal(1, "FAIL: directed/%s/counts.txt ends within a line", name);
        if (had != wanted) $fatal(1, "FAIL: directed/%s/counts.txt has %0d lines; expected %0d (steps.txt)", name, had, wanted);
        $fclose(lines);
        direct = 1'b0;
    endtask

    // Asks for the digits in `direct_drive`, and compares the lanes of a slice.
    task automatic ask(
        input string where, input int slice, input int turn, input longint taken_off, input int sum_wanted, input int code_wanted
    );
        at_step(where);
        @(negedge clk);
        direct_cycle = turn;
        direct_offset = FINE_BITS'(taken_off);
        direct_valid = 1'b1;
        #1 quiet = 0;
        listen(where);
        while (!accepted) begin
            @(negedge clk);
            listen(where);
        end
        compare_directed(slice, sum_wanted, code_wanted);
        while (!complete) begin
            @(negedge clk);
            direct_valid = 1'b0;
            #1 listen(where);
            compare_directed(slice, sum_wanted, code_wanted);
        end
        @(negedge clk) direct_valid = 1'b0;
    endtask

    // Writes what is not in the array yet: from `fewest` to `up_to` rows hold `unit`, row 0 `first`. Further
    // rows are erased if cells leak, else never driven.
    task automatic program_direct(
        input int fewest, input int up_to, input int first, input int unit, input logic second, input logic below
    );
        int was_full;
        logic [LINE-1:0] full_line;
        logic anew;
        anew = cell_of != unit || second != cell_second || below != cell_negative;
        was_full = anew ? 0 : direct_full;
        direct_full = was_full;
        if (direct_full < fewest) direct_full = fewest;
        if (direct_full > up_to) direct_full = up_to;
        full_line = direct_line(unit, second, below);
        for (int r = 0; r < ROWS; r++)
            if (r == 0 && direct_full > 0 && (was_full == 0 || first != cell_first)) write_line(0, direct_line(first, second, below));
            else if (r > 0 && r >= was_full && r < direct_full) write_line(r, full_line);
            else if (LEAK > 0 && r >= direct_full && (anew || r < was_full)) write_line(r, '0);
        cell_of = unit; cell_first = (direct_full > 0) ? first : -1; cell_second = second; cell_negative = below;
    endtask

    // The lanes of a slice that answer in this clock.
    task automatic compare_directed(input int slice, input int sum_wanted, input int code_wanted);
        longint values, wrong;
        logic [SUM_BITS-1:0] sum;
        logic [CODE_BITS-1:0] code;
        values = 0; wrong = 0;
        sum = SUM_BITS'(sum_wanted); code = CODE_BITS'(code_wanted);
        for (int l = 0; l < CONVERTED; l++)
            if (out_valid[l] && slice_of(l) == slice) begin
                values = values + 1;
                if ((shows_sums && sums[l*SUM_BITS +: SUM_BITS] !== sum) || codes[l*CODE_BITS +: CODE_BITS] !== code) wrong = wrong + 1;
            end
        count(7, values, wrong);
    endtask
