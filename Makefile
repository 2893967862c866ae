# kvtools: the whole build.  `make help` lists the targets; nothing is guessed.
#   CC, CFLAGS, CPPFLAGS, LDFLAGS, prefix, DESTDIR belong to you (or your packager); SAN=1 adds ASan and UBSan.
#   KERNEL_CFLAGS is for kernels/cpu only: the default uses every instruction of the machine that builds.

VERSION := 0.1.0
prefix  ?= /usr/local
B       ?= build$(if $(SAN),/san)
CC      ?= cc
CFLAGS  ?= -O2 -g
KERNEL_CFLAGS ?= -O3 -march=native
WARN    := -Wall -Wextra -Wshadow
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
comma   := ,

ALLFLAGS = -std=c11 -D_GNU_SOURCE -DKV_VERSION='"$(VERSION)"' -I. $(WARN) -fopenmp -ffp-contract=off
LIBS     = -lmsgpackc -ljansson -lxxhash -lpcre2-8 -lutf8proc -ldnnl -ldl -lm

LIB   := $(sort $(wildcard lib/*.c lib/*/*.c formats/*.c kernels/*.c kernels/cpu/*.c))
BIN   := $(sort $(wildcard bin/kv-*.c))
UNIT  := $(sort $(wildcard tests/unit/*.c tests/kernels/*.c))
TLIB  := $(sort $(wildcard tests/lib/*.c))
TOOL  := $(sort $(wildcard tests/tools/*.c))

LIBOBJ  := $(LIB:%=$B/%.o)
TLIBOBJ := $(TLIB:%=$B/%.o)
PROGS   := $(BIN:bin/%.c=$B/bin/%)
TESTS   := $(UNIT:tests/%.c=$B/tests/%)
TOOLS   := $(TOOL:tests/%.c=$B/tests/%)

.PHONY: all check check-long check-unit check-cli check-includes demo install uninstall clean help deps bench
all: $(PROGS)

$B/kernels/%.c.o: ALLFLAGS += $(KERNEL_CFLAGS)
$B/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) -MMD -MP -c -o $@ $<

$B/libkv.a: $(LIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$B/bin/%: $B/bin/%.c.o $B/bin/common.c.o $B/libkv.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# An archive, so that a test is linked with what it uses and nothing else.
$B/tests/libtest.a: $(TLIBOBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$B/tests/%: $B/tests/%.c.o $B/tests/libtest.a $B/libkv.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)

check-unit: $(TESTS)
	@tests/run-unit $(TESTS)

check-cli: $(PROGS) $(TOOLS)
	@KV_BUILD=$(abspath $B) bats tests/cli

check: check-unit check-cli
