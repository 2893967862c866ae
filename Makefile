# kvtools: the whole build.  `make help` lists the targets; nothing is guessed.
#   CC, CFLAGS, CPPFLAGS, LDFLAGS, prefix, DESTDIR belong to you (or your packager); SAN=1 adds ASan and UBSan.
#   KERNEL_CFLAGS is for kernels/ and lib/checksum.c alone: by default every instruction of the machine that builds.
#   CUDA=0 leaves libkvcuda.so out; NVCC, NVCCFLAGS, CUDA_ARCH, CUDA_HOME say how it is built (cuda.mk).
#   -ffp-contract=off everywhere else: budgets and kept sets must be the same integers on every machine.

VERSION := 0.1.0
prefix  ?= /usr/local
B       ?= build$(if $(SAN),/san)
CC      ?= cc
CFLAGS  ?= -O2 -g
KERNEL_CFLAGS ?= -O3 -march=native
WARN    := -Wall -Wextra -Wshadow
comma   := ,
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
# Thread-local memory of libraries that are opened late, as oneDNN is, confuses ASan and then its leak check.
ifdef SAN
export ASAN_OPTIONS := $(if $(ASAN_OPTIONS),$(ASAN_OPTIONS):)intercept_tls_get_addr=0
endif

ALLFLAGS = -std=c11 -D_GNU_SOURCE -DKV_VERSION='"$(VERSION)"' -I. $(WARN) -pthread -ffp-contract=off
LIBS     = -lmsgpackc -ljansson -lxxhash -lpcre2-8 -lutf8proc -ldl -lm

LIB   := $(sort $(wildcard lib/*.c lib/*/*.c formats/*.c kernels/*.c kernels/cpu/*.c))
BIN   := $(sort $(wildcard bin/kv-*.c))
SHARE := $(filter-out $(BIN),$(sort $(wildcard bin/*.c)))
TRAIN := $(sort $(wildcard bin/train/*.c))
UNIT  := $(sort $(wildcard tests/unit/*.c tests/kernels/*.c))
TLIB  := $(sort $(wildcard tests/lib/*.c))
TOOL  := $(sort $(wildcard tests/tools/*.c))
BENCH := $(sort $(wildcard bench/*.c))
BLIB  := $(sort $(wildcard bench/lib/*.c))

LIBOBJ  := $(LIB:%=$B/obj/%.o)
TLIBOBJ := $(TLIB:%=$B/obj/%.o)
PROGS   := $(BIN:bin/%.c=$B/bin/%)
TESTS   := $(UNIT:tests/%.c=$B/tests/%)
TOOLS   := $(TOOL:tests/%.c=$B/tests/%)
BENCHES := $(BENCH:%.c=$B/%)

.PHONY: all cuda check check-includes check-unit check-shim check-cuda cuda-tests check-cli check-long
.PHONY: bench card demo install uninstall clean help
all: $(PROGS) cuda

$B/obj/kernels/%.c.o $B/obj/lib/checksum.c.o: ALLFLAGS += $(KERNEL_CFLAGS)
$B/obj/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) -MMD -MP -c -o $@ $<

$B/libkv.a: $(LIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$B/bin/%: $B/obj/bin/%.c.o $(SHARE:%=$B/obj/%.o) $B/libkv.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $B/libkv.a $(LIBS)

# A program that is too long for one file.
$B/bin/kv-train: $(TRAIN:%=$B/obj/%.o)

# An archive, so that a test is linked with what it uses and nothing else.
$B/tests/libtest.a: $(TLIBOBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(AR) rcs $@ $^

$B/tests/%: $B/obj/tests/%.c.o $B/tests/libtest.a $B/libkv.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) -larchive -lcmocka

$B/bench/roof: LIBS += -ldnnl
$B/bench/%: $B/obj/bench/%.c.o $(BLIB:%=$B/obj/%.o) $(SHARE:%=$B/obj/%.o) $B/libkv.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

include cuda.mk

.SECONDARY:
-include $(shell find $B/obj $B/cuda $B/shim -name '*.d' 2>/dev/null)

# ---- tests: `check` needs no network, no GPU, no model; `check-long` fetches the demo's model and some vocabularies
check: check-includes check-unit check-shim check-cuda check-cli
check-includes:
	@tests/check-includes
	@tests/check-methods
	@tests/check-columns
check-unit: $(TESTS)
	@tests/run-unit $(TESTS)
check-cli: $(PROGS) $(TOOLS) $(BENCHES) $(SHIMLIB)
	@KV_BUILD=$(abspath $B) bats tests/cli
check-long: all $(TOOLS) $(BENCHES) cuda-tests
	@KV_BUILD=$(abspath $B) tests/run-long

# ---- measurements: bench/run.sh says what of, and which variables it knows
bench: all $(BENCHES)
	@KV_BUILD=$(abspath $B) bench/run.sh
# What bench/gpu.sh runs on a machine with a card, which need not have what it takes to build.
card:
	@KV_BUILD=$(abspath $B) bench/pack.sh

# ---- the demo: installs what is missing, fetches a real small model, runs the pipeline on a real document
demo:
	@tools/deps
	@$(MAKE) --no-print-directory all
	@KV_BUILD=$(abspath $B) examples/demo.sh

install: all
	install -d $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/share/man/man1 \
	    $(DESTDIR)$(prefix)/share/man/man5 $(DESTDIR)$(prefix)/share/man/man7
	install -m 755 $(PROGS) $(DESTDIR)$(prefix)/bin
	$(if $(CUDALIB),install -d $(DESTDIR)$(prefix)/lib && install -m 755 $(CUDALIB) $(DESTDIR)$(prefix)/lib)
	install -m 644 man/*.1 $(DESTDIR)$(prefix)/share/man/man1
	install -m 644 man/*.5 $(DESTDIR)$(prefix)/share/man/man5
	install -m 644 man/*.7 $(DESTDIR)$(prefix)/share/man/man7
uninstall:
	cd $(DESTDIR)$(prefix)/bin && rm -f $(notdir $(PROGS))
	rm -f $(DESTDIR)$(prefix)/lib/libkvcuda.so
	cd $(DESTDIR)$(prefix)/share/man && rm -f $(foreach n,1 5 7,$(patsubst man/%,man$n/%,$(wildcard man/*.$n)))

clean:
	rm -rf build

help:
	@echo 'make             the programs, in build/bin, and libkvcuda.so in build where nvcc is found'
	@echo 'make cuda        libkvcuda.so alone'
	@echo 'make demo        install missing Debian packages, fetch a small model, run the whole pipeline'
	@echo 'make check       all tests (a few minutes; no network, no GPU); with SAN=1 under ASan and UBSan'
	@echo 'make check-cuda  the CUDA backend alone, on a processor (needs the CUDA headers, no card)'
	@echo 'make check-shim  what stands for a card there'
	@echo 'make check-long  slow tests: the demo model and original vocabularies are fetched'
	@echo 'make bench       measure every stage and pipeline (15 minutes); BENCH_QUICK=1: try it out (1 minute)'
	@echo 'make card        build/card: what bench/gpu.sh tests and measures, to be taken to a machine with a card (needs nvcc)'
	@echo 'make install     to $$DESTDIR$$prefix (/usr/local); make uninstall takes it away'
	@echo 'make clean       remove build/'
	@echo 'Variables: CC CFLAGS CPPFLAGS LDFLAGS KERNEL_CFLAGS prefix DESTDIR B (build folder) SAN'
	@echo '           CUDA=0 (leave it out) NVCC NVCCFLAGS CUDA_ARCH CUDA_HOME CXX'
