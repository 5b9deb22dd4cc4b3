/* Instructions that a CPU lacks, those of the simulator's kernels: preloaded, for tests.

   They are those of AMX's tiles, and AVX-VNNI's VPDPBUSD of 256 bits. Such an instruction raises
   SIGILL. The handler decodes it, carries it out, on eight tiles that each thread has or on vector
   registers, and goes on behind it; one that a CPU with it would refuse ends the process. They are
   as in volume 2 of Intel's Software Developer's Manual. */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, BYTES = 64 };
enum { NONE, P66, PF3, PF2 }; /* the prefixes that VEX.pp stands for */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

struct instruction {
    int length, opcode, prefix, wide, in_register;
    int reg, rm, vvvv;
    uint8_t *address;
    int64_t stride;
};

static __thread struct tile_config config;
static __thread uint8_t tiles[TILES][ROWS][BYTES];

/* The general registers in the order of their numbers in instructions. */
static const int REGISTERS[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};

static int64_t general(const ucontext_t *context, int number) {
    return context->uc_mcontext.gregs[REGISTERS[number]];
}

/* Three-byte VEX, W0, map 0F38, without an address-size or segment prefix. */
static int decode(const ucontext_t *context, struct instruction *found) {
    const uint8_t *code = (const uint8_t *)context->uc_mcontext.gregs[REG_RIP], *at = code + 5;
    if (code[0] != 0xC4 || (code[1] & 0x1F) != 2 || code[2] & 0x80)
        return 0;
    int more_reg = code[1] & 0x80 ? 0 : 8, more_index = code[1] & 0x40 ? 0 : 8;
    int more_base = code[1] & 0x20 ? 0 : 8, mode = code[4] >> 6, low = code[4] & 7;
    found->prefix = code[2] & 3;
    found->wide = code[2] >> 2 & 1;
    found->vvvv = ~(code[2] >> 3) & 15;
    found->opcode = code[3];
    found->in_register = mode == 3;
    found->reg = (code[4] >> 3 & 7) + more_reg;
    found->rm = low + more_base;
    found->stride = 0;
    if (mode < 3) {
        int32_t moved = 0;
        int64_t address = 0;
        int whole = mode == 2; /* a displacement of 32 bits */
        if (low == 4) {
            int base = *at & 7, index = (*at >> 3 & 7) + more_index;
            if (index != 4)
                found->stride = (int64_t)((uint64_t)general(context, index) << (*at >> 6));
            if (base == 5 && mode == 0)
                whole = 1;
            else
                address = general(context, base + more_base);
            at++;
        } else if (low == 5 && mode == 0) {
            whole = 1;
            address = (int64_t)at + 4; /* relative to the next instruction */
        } else {
            address = general(context, found->rm);
        }
        if (whole) {
            memcpy(&moved, at, 4);
            at += 4;
        } else if (mode == 1) {
            moved = (int8_t)*at++;
        }
        found->address = (uint8_t *)(address + moved);
    }
    found->length = (int)(at - code);
    return 1;
}

static int configure(const uint8_t *from) {
    struct tile_config wanted;
    memcpy(&wanted, from, sizeof wanted);
    if (wanted.palette != 1 || wanted.start_row)
        return 0;
    for (int i = 0; i < 16; i++)
        if (wanted.bytes[i] > (i < TILES ? BYTES : 0) || wanted.rows[i] > (i < TILES ? ROWS : 0))
            return 0;
    memset(tiles, 0, sizeof tiles);
    config = wanted;
    return 1;
}

static int release(void) {
    memset(tiles, 0, sizeof tiles);
    memset(&config, 0, sizeof config);
    return 1;
}

static int known(int tile) {
    return config.palette && tile < TILES && config.rows[tile] && config.bytes[tile];
}

static int clear(int tile) {
    memset(tiles[tile], 0, sizeof tiles[tile]);
    return 1;
}

static int load(int tile, const uint8_t *from, int64_t stride) {
    clear(tile);
    for (int row = 0; row < config.rows[tile]; row++)
        memcpy(tiles[tile][row], from + row * stride, config.bytes[tile]);
    return 1;
}

static int store(int tile, uint8_t *to, int64_t stride) {
    for (int row = 0; row < config.rows[tile]; row++)
        memcpy(to + row * stride, tiles[tile][row], config.bytes[tile]);
    return 1;
}

/* sums[m][n] += sum over k of a[m][k] b[k / 4][4 n + k % 4], modulo 2^32; unsigned a, signed b. */
static int multiply(int sums, int a, int b) {
    if (!known(sums) || !known(a) || !known(b) || sums == a || sums == b || a == b)
        return 0;
    int rows = config.rows[sums], depth = config.bytes[a], width = config.bytes[sums];
    if (config.rows[a] != rows || config.bytes[b] != width || config.rows[b] * 4 != depth)
        return 0;
    for (int m = 0; m < rows; m++) {
        uint32_t line[BYTES / 4];
        memcpy(line, tiles[sums][m], sizeof line);
        for (int k = 0; k < depth; k++) {
            const int8_t *cells = (const int8_t *)tiles[b][k / 4];
            for (int n = 0; n < width / 4; n++)
                line[n] += (uint32_t)(tiles[a][m][k] * cells[4 * n + k % 4]);
        }
        memset(tiles[sums][m], 0, BYTES);
        memcpy(tiles[sums][m], line, (size_t)width);
    }
    return 1;
}

/* The area in which the kernel keeps a thread's vector registers: offsets in XSAVE's own form. */
enum { LOW_HALVES = 160, COMPONENTS = 512, HIGH_HALVES = 576, HALF = 16, REGISTERS_16 = 256 };
enum { LOW_KEPT = 2, HIGH_KEPT = 4 };

/* Registers that are all zeros may not have been written to the area. */
static uint8_t *vector_area(ucontext_t *context) {
    uint8_t *area = (uint8_t *)context->uc_mcontext.fpregs;
    uint64_t kept;
    memcpy(&kept, area + COMPONENTS, sizeof kept);
    if (!(kept & LOW_KEPT))
        memset(area + LOW_HALVES, 0, REGISTERS_16);
    if (!(kept & HIGH_KEPT))
        memset(area + HIGH_HALVES, 0, REGISTERS_16);
    kept |= LOW_KEPT | HIGH_KEPT;
    memcpy(area + COMPONENTS, &kept, sizeof kept);
    return area;
}

/* sums[i] += sum over k of a[4 i + k] b[4 i + k], modulo 2^32; unsigned a, signed b. */
static int multiply_vectors(ucontext_t *context, const struct instruction *one) {
    uint8_t *area = vector_area(context);
    for (int half = 0; half < 2; half++) {
        uint8_t *halves = area + (half ? HIGH_HALVES : LOW_HALVES);
        const uint8_t *a = halves + HALF * one->vvvv;
        const int8_t *b = one->in_register
                              ? (const int8_t *)halves + HALF * one->rm
                              : (const int8_t *)one->address + one->stride + HALF * half;
        uint32_t sums[HALF / 4];
        memcpy(sums, halves + HALF * one->reg, sizeof sums);
        for (int k = 0; k < HALF; k++)
            sums[k / 4] += (uint32_t)(a[k] * b[k]);
        memcpy(halves + HALF * one->reg, sums, sizeof sums);
    }
    return 1;
}

/* Carry an instruction out; 0 for one that is not known here, or that a CPU with AMX refuses. */
static int execute(ucontext_t *context, const struct instruction *one) {
    int opcode = one->opcode << 8 | one->prefix << 4 | one->in_register, tile = one->reg;
    if (one->wide) /* VPDPBUSD */
        return (opcode | 1) == (0x50 << 8 | P66 << 4 | 1) && multiply_vectors(context, one);
    if (opcode == (0x5E << 8 | P66 << 4 | 1)) /* TDPBUSD */
        return multiply(tile, one->rm, one->vvvv);
    if (one->vvvv)
        return 0;
    switch (opcode) {
    case 0x4B << 8 | PF2 << 4: /* TILELOADD */
        return known(tile) && load(tile, one->address, one->stride);
    case 0x4B << 8 | PF3 << 4: /* TILESTORED */
        return known(tile) && store(tile, one->address, one->stride);
    case 0x49 << 8 | PF2 << 4 | 1: /* TILEZERO */
        return known(tile) && one->rm == 0 && clear(tile);
    case 0x49 << 8 | NONE << 4: /* LDTILECFG */
        return tile == 0 && configure(one->address);
    case 0x49 << 8 | NONE << 4 | 1: /* TILERELEASE */
        return tile == 0 && one->rm == 0 && release();
    }
    return 0;
}

static void carry_out(int number, siginfo_t *unused, void *given) {
    ucontext_t *context = given;
    struct instruction one = {0};
    (void)unused;
    if (decode(context, &one) && execute(context, &one))
        context->uc_mcontext.gregs[REG_RIP] += one.length;
    else
        signal(number, SIG_DFL); /* the instruction is met again, and ends the process */
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = carry_out;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, 0);
}

/* In place of the C library's: Linux, on a CPU with AMX, grants the tile registers. */
long syscall(long number, ...) {
    long argument[6], result;
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        argument[i] = va_arg(given, long);
    va_end(given);
    if (number == SYS_arch_prctl && argument[0] == REQUEST_PERMISSION && argument[1] == TILE_DATA)
        return 0;
    register long r10 __asm__("r10") = argument[3];
    register long r8 __asm__("r8") = argument[4];
    register long r9 __asm__("r9") = argument[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(argument[0]), "S"(argument[1]), "d"(argument[2]), "r"(r10),
                       "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
