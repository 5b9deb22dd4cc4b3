    // The vectors of a read are those of taps/, and a layer's sums are those over all row groups.
    localparam int SHOWN = TAPS; // taps that are shown

    task automatic drive_group(input int column, input int end_column);
        string base, shared_base;
        base = {handoff, "/taps/", array, "/", group};
        shared_base = {handoff, "/taps/", across, "/", group};
        $readmemh({shared_base, ".inputs.hex"}, inputs, 0, vectors - 1);
        $readmemh({shared_base, ".digits.hex"}, want_digits, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".sums.hex"}, want_sums, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".codes.hex"}, want_codes, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".shift_add.hex"}, want_acc, 0, vectors - 1);
        drive_vectors(column, end_column);
    endtask

    // Adds what a row group gave to the layer's sum of a column.
    task automatic add_up(input int n, input int column);
        sum_before = totals[n*WIDTH + column];
        totals[n*WIDTH + column] = sum_before + ACC_BITS'(whole);
    endtask

    // Drives the sums of directed/.
    task automatic direct_sums(input int converter_lines, input int count_lines);
        if (code_kind != 0) direct_converter(converter_lines);
        direct_counts(count_lines);
    endtask

    // Compares the layer's sums over all row groups.
    task automatic sum_layer;
        $readmemh({handoff, "/constants/", name, "/bias.hex"}, bias, 0, columns - 1);
        $readmemh({handoff, "/taps/", name, "/layer_sum.hex"}, want_sum, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++) begin
            at_step($sformatf("layer sums of %s, vector %0d", name, n));
            for (int j = 0; j < columns; j++) begin
                sum_up(totals[n*WIDTH + j], j);
                totals[n*WIDTH + j] = '0;
                layer_sums[n*WIDTH + j] = 64'(o_sum);
                count(4, 64'd1, (64'(o_sum) === want_sum[n*columns + j]) ? 64'd0 : 64'd1);
            end
        end
    endtask

    // Requantises these sums, and compares the results.
    task automatic requantise;
        string base;
        load_requantiser;
        $readmemh({handoff, "/taps/", after, "/requantised.hex"}, want_out, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++) begin
            at_step($sformatf("requantisation %s, vector %0d", after, n));
            for (int j = 0; j < columns; j++) begin
                drive_requantiser(after_stages(layer_sums[n*WIDTH + j], j), j);
                count(5, 64'd1, (64'(o_y) === want_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
        end
        // Numbers next to the requantiser's thresholds, DIRECTED per column.
        base = {handoff, "/directed/", after, "/requantiser_"};
        $readmemh({base, "in.hex"}, directed_in, 0, DIRECTED * columns - 1);
        $readmemh({base, "out.hex"}, directed_out, 0, DIRECTED * columns - 1);
        for (int n = 0; n < DIRECTED; n++)
            for (int j = 0; j < columns; j++) begin
                drive_requantiser(directed_in[n*columns + j], j);
                count(6, 64'd1, (64'(o_y) === directed_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
    endtask
