    // Queries are drawn, QUERIES at a time. Their right values are computed here from the words of cam/ and
    // the line `search` of steps.txt, cell by cell.
    //
    //   +VECTORS=N   queries (1000), rounded up to a multiple of QUERIES
    //   +SEED=N      seed of the random numbers (1)
    int seed = 0;
    function automatic int passes;
        int wanted;
        if (!$value$plusargs("VECTORS=%d", wanted)) wanted = 1000;
        if (!$value$plusargs("SEED=%d", seed)) seed = 1;
        passes = (wanted + QUERIES - 1) / QUERIES;
    endfunction

    // A number of 32 bits in which each bit of another plays a part.
    function automatic logic [31:0] mixed(input logic [31:0] given);
        mixed = (given ^ (given >> 16)) * 32'h7feb352d;
        mixed = (mixed ^ (mixed >> 15)) * 32'h846ca68b;
        mixed = mixed ^ (mixed >> 16);
    endfunction

    // All arrays in a column get the same cells of a query. Cells that no item has get 0.
    task automatic load_queries;
        int column, cell_number;
        logic [31:0] drawn;
        if ($sscanf(segment, "c%d", column) != 1) $fatal(1, "FAIL: steps.txt: %s is no segment", segment);
        for (int n = 0; n < QUERIES; n++)
            for (int c = 0; c < CELLS; c++) begin
                cell_number = column * CELLS + c;
                drawn = mixed(mixed(mixed(seed) ^ (pass * QUERIES + n)) ^ cell_number);
                queries[n][c*CELL_LANE +: CELL_LANE] = CELL_LANE'((cell_number < item_cells) ? drawn % (32'd1 << value_bits) : 32'd0);
            end
    endtask

    task automatic load_matches;
        longint total, code, held, value;
        for (int n = 0; n < QUERIES; n++)
            for (int w = 0; w < last - first; w++) begin
                total = 0;
                for (int c = 0; c < CELLS; c++)
                    if (cells[w][c*CELL_LANE +: CELL_LANE] != {CELL_LANE{1'b1}}) begin
                        held = 64'(cells[w][c*CELL_LANE +: CELL_LANE]);
                        value = 64'(queries[n][c*CELL_LANE +: CELL_LANE]);
                        held = (held < value) ? value - held : held - value;
                        case (measure)
                            0: total = total + ((held == 0) ? 0 : 1);
                            1: total = total + held;
                            default: total = total + held * held;
                        endcase
                    end
                code = (total / word_step < word_top) ? total / word_step : word_top;
                want_distances[n][w*LANE +: LANE] = LANE'(total);
                want_codes[n][w*LANE +: LANE] = LANE'(code);
                want_sums[n*ITEMS + first + w] = want_sums[n*ITEMS + first + w] + code;
            end
    endtask

    // Each place of the shortlist has the nearest of the items that are not listed yet.
    task automatic load_ranking;
        logic listed_before [0:ITEMS-1];
        int nearest;
        for (int n = 0; n < QUERIES; n++) begin
            for (int m = 0; m < ITEMS; m++) begin
                want_estimates[n*ITEMS + m] = want_sums[n*ITEMS + m] * factors[m] + offsets[m];
                listed_before[m] = 1'b0;
            end
            for (int p = 0; p < LENGTH; p++) begin
                nearest = -1;
                for (int m = 0; m < ITEMS; m++)
                    if (!listed_before[m] && (nearest < 0 || want_estimates[n*ITEMS + m] < want_estimates[n*ITEMS + nearest]))
                        nearest = m;
                listed_before[nearest] = 1'b1;
                want_listed[n*LENGTH + p] = 64'(nearest);
            end
        end
    endtask
