"""What tools/compilers does once it has drivers: runs `llmrt-bench pipelines` on each chip and tells what came out.

    compilers.py PREFIX INTEL_SHIM LLMRT_BENCH [--json FILE] [CHIP...]
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import subprocess
import sys
import tempfile

# Mesa's driver, the library that stands in for its hardware, and what tells that which chip to be.
AMD = ("radeon", "amdgpu", "AMDGPU_GPU_ID")
NVIDIA = ("nouveau", "nouveau", "NOUVEAU_CHIPSET")
ADRENO = ("freedreno", "freedreno", "FD_GPU_ID")
INTEL = ("intel", "intel", "INTEL_STUB_GPU_PLATFORM")
CHIPS = {
    "polaris10": (*AMD, "polaris10"), "vega20": (*AMD, "vega20"), "navi10": (*AMD, "navi10"), "navi21": (*AMD, "navi21"),
    "vangogh": (*AMD, "vangogh"), "navi31": (*AMD, "navi31"), "strix1": (*AMD, "strix1"), "gfx1201": (*AMD, "gfx1201"),
    "nvk-turing": (*NVIDIA, "162"), "nvk-ampere": (*NVIDIA, "172"), "adreno740": (*ADRENO, "740"),
    "tgl": (*INTEL, "tgl"), "dg2": (*INTEL, "dg2"), "bmg": (*INTEL, "bmg"),  # Xe, Arc A, Arc B
    # The tiers of kernels below what the chip has.
    "navi31-t1": (*AMD, "navi31"), "navi31-t0": (*AMD, "navi31"),
}
# Heads of 64 and of 128 numbers; every kind of encoding; every kind of cache.
WORK = [
    ["-m", "synthetic:smollm2-135m:q4_0", "--kv", "f16,bf16,int8,fp8"],
    ["-m", "synthetic:qwen3-0.6b:q4_0", "--kv", "f16,int8"],
    [item for encoding in ("f16", "bf16", "q8_0", "q5_1", "q4_k") for item in ("-m", f"synthetic:smollm2-135m:{encoding}")],
]
TOKENS_MAX = 512
HOT = ("matmul_", "qkv", "paged_attention")
# The drivers' own names.
REGISTERS = ("VGPRs", "Number of GPRs", "Registers used", "Max live registers")
OCCUPANCY = ("Subgroups per SIMD", "Max warps/SM", "Max Waves Per Core", "Max dispatch width")
CODE = ("Code size",)
SPILLS = ("Spilled VGPRs", "Spills to memory", "STP Count", "Spills")  # to memory; scalar ones go to other registers
# What is known to spill, at most so many, with this Mesa: debts, not to grow. What another one makes of kernels is told
# and is no error.
KNOWN_MESA = "26.1.6"
KNOWN = {("adreno740", "paged_attention_decode"): 43, ("adreno740", "matmul_vector"): 5,
         # Intel's are of 32 or (bmg) 64 bytes, of a thread's 128. Attention of heads of 128 numbers keeps 6 KB of them for
         # sums and queries; of 64 numbers half of that.
         # Of rows with several tokens each lane knows what its rows see, too.
         ("tgl", "paged_attention_decode.runs"): 56, ("dg2", "paged_attention_decode.runs"): 58,
         ("bmg", "paged_attention_decode.runs"): 10,
         ("tgl", "paged_attention_decode"): 48, ("dg2", "paged_attention_decode"): 47, ("tgl", "matmul_tile"): 10,
         ("dg2", "matmul_tile"): 7, ("bmg", "paged_attention_matrix"): 320}
# What a hot kernel's occupancy should not be below, by driver. RADV counts a subgroup of 64 lanes as two on RDNA, as one
# on GCN, where 4 share 256 registers a lane.
FLOOR = {AMD: 8, NVIDIA: 8, ADRENO: 4}
FLOOR_GCN = {"polaris10": 4, "vega20": 4}
# What is known to be below, and how far: 8 x 8 sums a lane in registers (matmul_tile, matmul_pairs); tiles of f32 queries,
# keys and values in shared memory; queries of which several lanes hold each number (strix1); q6_k of 2 rows and K blocks of 6 rows
# and more, which are bound by arithmetic, 3 query heads of a KV head and tiles of 32 rows of x (GCN).
KNOWN_LOW = {("polaris10", "matmul_vector"): 3, ("vega20", "matmul_vector"): 3,
             ("polaris10", "matmul_tile"): 3, ("vega20", "matmul_tile"): 3,
             ("polaris10", "paged_attention_decode"): 3, ("vega20", "paged_attention_decode"): 3,
             ("polaris10", "paged_attention_decode.runs"): 3, ("vega20", "paged_attention_decode.runs"): 3,
             ("polaris10", "paged_attention_tile"): 1, ("vega20", "paged_attention_tile"): 1,
             ("navi10", "paged_attention_tile"): 4, ("navi21", "paged_attention_tile"): 4,
             ("vangogh", "paged_attention_tile"): 4, ("navi31-t1", "paged_attention_tile"): 4,
             ("navi31-t0", "paged_attention_tile"): 4, ("adreno740", "paged_attention_tile"): 2,
             ("navi10", "paged_attention_block"): 2, ("navi21", "paged_attention_block"): 2,
             ("vangogh", "paged_attention_block"): 2, ("navi31-t1", "paged_attention_block"): 2,
             ("polaris10", "paged_attention_block"): 1, ("vega20", "paged_attention_block"): 1,
             ("adreno740", "paged_attention_block"): 2, ("navi10", "matmul_tile"): 4, ("navi21", "matmul_tile"): 4,
             ("vangogh", "matmul_tile"): 4, ("navi31-t1", "matmul_tile"): 4, ("navi31-t0", "matmul_tile"): 4,
             ("navi10", "paged_attention_block.pairs"): 6, ("navi21", "paged_attention_block.pairs"): 6,
             ("vangogh", "paged_attention_block.pairs"): 6, ("navi31-t1", "paged_attention_block.pairs"): 6,
             ("adreno740", "paged_attention_block.pairs"): 2, ("navi10", "matmul_pairs"): 4,
             ("navi21", "matmul_pairs"): 4, ("vangogh", "matmul_pairs"): 4, ("navi31-t1", "matmul_pairs"): 6,
             ("strix1", "paged_attention_matrix"): 4, ("navi31-t0", "qkv"): 6}


def first(statistics, names):
    return next((statistics[name] for name in names if name in statistics), 0)


def mesa_of(prefix):
    with gzip.open(os.path.join(prefix, "usr/share/doc/mesa-vulkan-drivers/changelog.Debian.gz"), "rt") as file:
        return file.readline().split("(")[1].split("-")[0]  # mesa (26.1.6-1) unstable; ...


class Compiled:
    def __init__(self, record):
        statistics = record["statistics"]
        self.shader, self.constants = record["shader"], record["constants"]
        if self.shader == "paged_attention_decode" and self.constants[-1]:
            self.shader += ".runs"  # kHasRuns: of rows with several tokens
        self.registers = first(statistics, REGISTERS)
        self.occupancy = first(statistics, OCCUPANCY)
        self.code_bytes = first(statistics, CODE)
        self.spills = first(statistics, SPILLS)

    def is_hot(self):
        return self.shader.startswith(HOT)


def below_floor(results):
    """Hot kernels that leave the device fewer subgroups than they should, and than is known."""
    lines = []
    for chip, (_, records, _) in results.items():
        floor = FLOOR_GCN.get(chip, FLOOR.get(CHIPS[chip][:3], 0))
        for k in map(Compiled, records):
            if k.is_hot() and k.occupancy < min(floor, KNOWN_LOW.get((chip, k.shader), floor)):
                lines.append(f"{chip}: {k.shader} {k.constants} occupancy {k.occupancy:g}, expected {floor}")
    return lines


def compile_on(chip, prefix, intel_shim, bench):
    """The chip's tier, its kernels as dicts, and what went wrong."""
    driver, shim, variable, value = CHIPS[chip]
    libraries = os.path.join(prefix, "usr/lib/x86_64-linux-gnu")
    shim_path = intel_shim if shim == "intel" else os.path.join(libraries, f"lib{shim}_noop_drm_shim.so")
    if not shim_path:
        return "", [], ["libintel_noop_drm_shim could not be built (the warning above)"]
    with tempfile.TemporaryDirectory() as folder:
        statistics = os.path.join(folder, "statistics")
        tier_cap = {"LLMRT_VULKAN_TIER": chip[-1]} if chip[-3:-1] == "-t" else {}
        environment = {**os.environ, **tier_cap, variable: value, "XDG_CACHE_HOME": folder,
                       "LLMRT_VULKAN_STATISTICS": statistics,
                       "VK_DRIVER_FILES": os.path.join(prefix, f"usr/share/vulkan/icd.d/{driver}_icd.json")}
        loader = [os.path.join(libraries, "ld-linux-x86-64.so.2"), "--preload",
                  shim_path, "--library-path", f"{libraries}:/usr/lib/x86_64-linux-gnu"]
        tier, errors = "", []
        for work in WORK:
            command = [*loader, bench, "pipelines", "-d", "vulkan:0", "--tokens-max", str(TOKENS_MAX), *work]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            if done.returncode:
                errors.append(f"{' '.join(work)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
            elif not tier:
                tier = done.stdout.split("): ")[0].split(", ")[-1]
        records = [json.loads(line) for line in open(statistics)] if os.path.exists(statistics) else []
    distinct = {json.dumps([r["shader"], r["group_size"], r["constants"]]): r for r in records}
    return tier, list(distinct.values()), errors


def table(results):
    """A line for each hot shader, a column for each chip: the kernel with the fewest groups at a time."""
    chips = list(results)
    kernels = {chip: [Compiled(record) for record in records] for chip, (_, records, _) in results.items()}
    print("| registers, occupancy, bytes | " + " | ".join(chips) + " |")
    print("|---|" + "---:|" * len(chips))
    for shader in sorted({k.shader for of_chip in kernels.values() for k in of_chip if k.is_hot()}):
        cells = []
        for chip in chips:
            of_shader = [k for k in kernels[chip] if k.shader == shader]
            worst = min(of_shader, key=lambda k: (k.occupancy, -k.registers), default=None)
            cells.append(f"{worst.registers:g}, {worst.occupancy:g}, {worst.code_bytes:g}" if worst else "")
        print(f"| {shader} | " + " | ".join(cells) + " |")
    print("| kernels | " + " | ".join(str(len(kernels[chip])) for chip in chips) + " |")
    print("| tier | " + " | ".join(results[chip][0] for chip in chips) + " |")
    return [f"{chip}: {k.shader} {k.constants} spills {k.spills:g}" for chip in chips for k in kernels[chip]
            if k.is_hot() and k.spills > KNOWN.get((chip, k.shader), 0)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("prefix")
    parser.add_argument("intel_shim", help="empty: there is none")
    parser.add_argument("bench")
    parser.add_argument("--json", help="every kernel with all that its driver says, by chip")
    parser.add_argument("chips", nargs="*", metavar="CHIP", help=", ".join(CHIPS))
    options = parser.parse_intermixed_args()
    for chip in options.chips:
        if chip not in CHIPS:
            parser.error(f"expected {', '.join(CHIPS)}, found {chip}")
    chips = options.chips or [chip for chip in CHIPS if options.intel_shim or CHIPS[chip][:3] != INTEL]
    skipped = [chip for chip in CHIPS if not options.chips and chip not in chips]
    if skipped:
        print(f"skipped: {', '.join(skipped)}: no stand-in for Intel's hardware", file=sys.stderr)
    results = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {chip: pool.submit(compile_on, chip, options.prefix, options.intel_shim, options.bench)
                   for chip in chips}
        for chip, future in running.items():
            results[chip] = future.result()
            print(f"{chip}: {len(results[chip][1])} kernels", file=sys.stderr)
    findings = table(results) + below_floor(results)
    errors = [f"{chip}: {error}" for chip, (_, _, of_chip) in results.items() for error in of_chip]
    errors += [f"{chip}: no kernel's statistics" for chip, (_, records, of_chip) in results.items()
               if not records and not of_chip]
    if options.json:
        with open(options.json, "w") as file:
            json.dump({chip: {"tier": tier, "kernels": records} for chip, (tier, records, _) in results.items()}, file)
    for line in (*findings, *errors):
        print(line, file=sys.stderr)
    mesa = mesa_of(options.prefix)
    if findings and mesa != KNOWN_MESA:
        print(f"no error: known with Mesa {KNOWN_MESA}, found {mesa}", file=sys.stderr)
        findings = []
    return 1 if findings or errors else 0


if __name__ == "__main__":
    sys.exit(main())
