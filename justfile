# Logic lives in Rust and in tools/; a recipe is one line.

# Lists the recipes.
default:
    @just --list

# Formatting, lints and the repository's habits.
check:
    cargo fmt --all --check && cargo clippy --workspace --all-targets -- -D warnings && cargo test -p lockstep-cli --test integration tidy

# Every Rust test.
test:
    cargo test --workspace

# The built program from outside: processes, sockets, bad input.
e2e:
    cargo test -p lockstep-cli --test integration e2e

# The official OpenAI and Anthropic Python clients against the built program.
clients *ARGS:
    tests/clients/run {{ARGS}}

# The embedded model's battery through the HTTP API, against its recorded score.
battery *ARGS:
    tests/clients/run battery {{ARGS}}

# Whether anything changes a byte that may not, in full; the table goes to docs/law.md.
law *ARGS:
    cargo run --release --bin lockstep -- law --runs 4000 --report docs/law.md {{ARGS}}

# One seed of the simulated world, or with `sim seeds N` many.
sim *ARGS:
    cargo sim-run {{ if ARGS =~ '^[0-9]+$' { "run " + ARGS } else { ARGS } }}

# Whether the simulation finds planted faults, and names the right stage.
planted *ARGS:
    cargo sim-run planted {{ARGS}}

# Fuzzes one target, guided by coverage where a nightly compiler and cargo-fuzz are there.
fuzz TARGET SECONDS="60":
    tools/fuzz.sh {{TARGET}} {{SECONDS}}

# Everything that holds the CUDA backend: on a device where there is one, else on its emulation.
cuda *ARGS:
    tools/cuda.sh {{ARGS}}

# SmolLM2-135M-Instruct as a Hugging Face directory under models/.
smollm2:
    tools/smollm2.sh

# Speed beside the machine's own limits.
bench *ARGS:
    cargo run --release --bin lockstep -- bench {{ARGS}}

# Serves the embedded model.
serve *ARGS:
    cargo run --release --bin lockstep -- serve {{ARGS}}

# Renews snapshots and the pins of documents, after reading them.
bless:
    UPDATE_EXPECT=1 BLESS=1 cargo test --workspace

# The pages of the crates.
docs:
    cargo doc --workspace --no-deps --document-private-items

# Everything that a change must pass.
ci:
    .ci/run
