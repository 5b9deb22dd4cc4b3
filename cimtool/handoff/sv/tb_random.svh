    // The vectors of a read are random. The golden model computes their taps through DPI: these
    // functions are in random/dpi.c.
    //
    //   +VECTORS=N   vectors per read (1000)
    //   +SEED=N      seed of the random numbers (1)
    import "DPI-C" function void random_begin(input string handoff, input int seed, input int count);
    import "DPI-C" function void random_read(input string read, input int column, input int end_column);
    import "DPI-C" function void random_vector();
    import "DPI-C" function int random_input(input int row, input int own);
    import "DPI-C" function int random_digit(input int row, input int cycle);
    import "DPI-C" function longint random_sum(input int lane, input int cycle);
    import "DPI-C" function longint random_code(input int lane, input int cycle);
    import "DPI-C" function longint random_added(input int weight);
    import "DPI-C" function void random_add(input int of_vector, input int of_column, input longint total);
    import "DPI-C" function longint random_total(input int of_vector, input int of_column);
    import "DPI-C" function longint random_layer_sum(input int of_vector, input int of_column);
    import "DPI-C" function longint random_requantised(
        input longint x, input longint factor, input int places, input longint lowest, input longint highest
    );

    localparam int SHOWN = 6; // taps that are shown

    int random_vectors = 0, seed = 0, first_vector = 0;

    task automatic drive_group(input int column, input int end_column);
        int chosen, left;
        if (random_vectors == 0) begin
            if (!$value$plusargs("VECTORS=%d", random_vectors)) random_vectors = 1000;
            if (!$value$plusargs("SEED=%d", seed)) seed = 1;
            random_begin(handoff, seed, random_vectors);
        end
        random_read({across, "/", group}, column, end_column);
        chosen = vectors;
        left = random_vectors;
        while (left > 0) begin
            vectors = (left < VECTORS) ? left : VECTORS;
            first_vector = random_vectors - left;
            for (int n = 0; n < vectors; n++) draw_vector(n, end_column - column);
            drive_vectors(column, end_column);
            left = left - vectors;
        end
        vectors = chosen;
    endtask

    // Rows that do not drive get numbers too, which must not change the taps; idle rows get zero.
    task automatic draw_vector(input int n, input int weights);
        int index, driven;
        random_vector();
        for (int t = 0; t < 32'(cycles); t++) begin
            index = n * 32'(cycles) + t;
            driven = 0;
            for (int r = 0; r < ROWS; r++) begin
                want_digits[index][r*DIGIT_LANE +: DIGIT_LANE] = row_enable[r] ? DIGIT_LANE'(random_digit(driven, t)) : '0;
                if (row_enable[r]) driven = driven + 1;
            end
            for (int l = 0; l < CONVERTED; l++)
                if (used[l]) begin
                    want_sums[index][l*SUM_BITS +: SUM_BITS] = SUM_BITS'(random_sum(l, t));
                    want_codes[index][l*CODE_BITS +: CODE_BITS] = CODE_BITS'(random_code(l, t));
                end
        end
        driven = 0;
        for (int r = 0; r < ROWS; r++) begin
            inputs[n][r*INPUT_BITS +: INPUT_BITS] = idle[r] ? '0 : INPUT_BITS'(random_input(driven, 32'(row_enable[r])));
            if (row_enable[r]) driven = driven + 1;
        end
        for (int w = 0; w < weights; w++) want_acc[n][w*64 +: 64] = random_added(w);
    endtask

    // What row groups give to a layer's sum is kept beside the golden model.
    task automatic add_up(input int n, input int column);
        random_add(first_vector + n, column, whole);
    endtask

    // The sums of directed/ are not drawn.
    task automatic direct_sums(input int converter_lines, input int count_lines);
        if (converter_lines + count_lines < 0) $fatal(1, "FAIL: steps.txt: a line direct has numbers below 0");
    endtask

    task automatic sum_layer;
        $readmemh({handoff, "/constants/", name, "/bias.hex"}, bias, 0, columns - 1);
        for (int n = 0; n < random_vectors; n++) begin
            at_step($sformatf("layer sums of %s, vector %0d", name, n));
            for (int j = 0; j < columns; j++) begin
                sum_up(ACC_BITS'(random_total(n, j)), j);
                count(4, 64'd1, (64'(o_sum) === random_layer_sum(n, j)) ? 64'd0 : 64'd1);
            end
        end
    endtask

    task automatic requantise;
        logic signed [63:0] given, want;
        load_requantiser;
        for (int n = 0; n < random_vectors; n++) begin
            at_step($sformatf("requantisation %s, vector %0d", after, n));
            for (int j = 0; j < columns; j++) begin
                given = after_stages(random_layer_sum(n, j), j);
                want = random_requantised(given, multiplier[j], 32'(shift[j]), least[j], most[j]);
                drive_requantiser(given, j);
                count(5, 64'd1, (64'(o_y) === want) ? 64'd0 : 64'd1);
            end
        end
    endtask
