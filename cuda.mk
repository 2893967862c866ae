# SPDX-License-Identifier: MIT
# CUDA, a part of the Makefile: libkvcuda.so by nvcc, and the same files by a host compiler against tests/cuda-shim, for
# the tests.

NVCC      ?= $(firstword $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc)) $(shell command -v nvcc 2>/dev/null) \
             $(wildcard /usr/local/cuda/bin/nvcc))
NVCCFLAGS ?= -O3
CUDA_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]'
CUDA_INC  := $(firstword $(foreach d,$(CUDA_HOME)/include $(NVCC:%/bin/nvcc=%/include) \
             /usr/local/cuda/include /usr/include,$(patsubst %/cuda_runtime.h,%,$(wildcard $d/cuda_runtime.h))))
CU        := $(sort $(wildcard kernels/cuda/*.cu))
SHIM      := $(if $(filter 0,$(CUDA))$(if $(CUDA_INC),,none),,$(sort $(wildcard tests/cuda-shim/*.cpp)))
DEVTEST   := $(sort $(wildcard tests/device/*.c))
CUDALIB   := $(if $(filter 0,$(CUDA))$(SAN)$(if $(NVCC),,none),,$B/libkvcuda.so)
SHIMLIB   := $(if $(SHIM),$B/tests/libkvcuda-shim.so)
SHIMOBJ   := $(SHIM:%=$B/shim/%.o)

# Without CUDA nothing is missing but this library: programs open it when they are told to compute on a card.
cuda: $(CUDALIB)
	@$(if $(CUDALIB)$(filter 0,$(CUDA))$(SAN),:,\
	    echo 'libkvcuda.so is not built: no nvcc in CUDA_HOME, PATH or /usr/local/cuda (NVCC=... names it)')

# A minute of nvcc is not done again for a change of this file.
CUFLAGS = -std=c++17 -I. -Xcompiler -fPIC$(comma)-fvisibility=hidden$(comma)-Wall$(comma)-Wextra
$B/cuda/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(CUFLAGS) $(CUDA_ARCH) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$B/cuda/%.c.o $B/shim/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) $(ALLFLAGS) $(SANFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<
$B/libkvcuda.so: $(CU:%=$B/cuda/%.o) $B/cuda/kernels/types.c.o
	$(NVCC) -shared -Xlinker --exclude-libs$(comma)ALL -o $@ $^

# tests/cuda-shim/README.md: the shim itself is never built with sanitizers.
SHIMFLAGS = -std=c++17 -march=native -ffp-contract=off -g -fno-strict-aliasing -fPIC -fvisibility=hidden \
            $(WARN) -Wno-unknown-pragmas -DKV_CUDA_SHIM -I. -Itests/cuda-shim/include -isystem $(CUDA_INC)
$B/shim/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS) $(SHIMFLAGS) -O2 $(SANFLAGS) -MMD -MP -c -o $@ -x c++ $<
$B/shim/%.cpp.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS) $(SHIMFLAGS) -O3 -MMD -MP -c -o $@ $<
$B/tests/libkvcuda-shim.so: $(CU:%=$B/shim/%.o) $(SHIMOBJ) $B/shim/kernels/types.c.o
	@mkdir -p $(@D)
	$(CXX) -shared $(SANFLAGS) -pthread -o $@ $^ -ldl

# What lanes of a warp get (tests/golden/lanes.txt): one program for a card, one for the shim.
$B/tests/lanes: tests/device/lanes.cu
	@mkdir -p $(@D) $B/cuda
	$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(CUFLAGS) $(CUDA_ARCH) -MMD -MP -MF $B/cuda/lanes.d -o $@ $<
$B/tests/lanes-shim: $B/shim/tests/device/lanes.cu.o $(SHIMOBJ)
	@mkdir -p $(@D)
	$(CXX) $(SANFLAGS) -pthread -o $@ $^ -ldl

# The shim's own tests, planted faults among them; a second time under TSan, which finds races of threads in a warp.
SHIMTEST := $(if $(SHIM),$(sort $(wildcard tests/cuda-shim/tests/*.cpp)))
SHIMRUN  := $(SHIMTEST:tests/cuda-shim/tests/%.cpp=$B/tests/shim/%) \
            $(if $(SAN),,$(SHIMTEST:tests/cuda-shim/tests/%.cpp=$B/tests/shim-tsan/%))
define build-shim-test
@mkdir -p $(@D)
$(CXX) $(CPPFLAGS) $(SHIMFLAGS) -O2 $(SANFLAGS) -MMD -MP -MF $B/shim/$(notdir $(@D))-$*.d -o $@ \
    $(filter %.cpp %.o,$^) -lcmocka -pthread -ldl
endef
$B/tests/shim/%: tests/cuda-shim/tests/%.cpp $(SHIMOBJ)
	$(build-shim-test)
$B/tests/shim-tsan/%: private SANFLAGS = -fsanitize=thread
$B/tests/shim-tsan/%: tests/cuda-shim/tests/%.cpp $(SHIMOBJ)
	$(build-shim-test)

# ---- tests
check-shim: $(SHIMRUN)
	@$(if $(SHIMRUN),tests/run-unit $(SHIMRUN))
# Every operation of the CUDA backend, on the shim: no card is needed, the CUDA headers are.
check-cuda: cuda-tests $(if $(SHIM),$B/tests/lanes-shim)
	@$(if $(SHIM),$B/tests/lanes-shim tests/golden/lanes.txt)
	@$(if $(SHIM),KV_TEST_BACKEND=$(abspath $(SHIMLIB)) KV_CUBLAS_LIBRARY=$(abspath $(SHIMLIB)) \
	    tests/run-unit $(DEVTEST:tests/%.c=$B/tests/%),\
	    echo 'the CUDA backend is not tested: $(if $(filter 0,$(CUDA)),CUDA=0,no CUDA headers (cuda_runtime.h))')
# CUDA_TESTS: their names, else all.
cuda-tests: $(SHIMLIB) $(if $(SHIM),$(or $(CUDA_TESTS:%=$B/tests/device/%),$(DEVTEST:tests/%.c=$B/tests/%)))
