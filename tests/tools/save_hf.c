/* SPDX-License-Identifier: MIT
 * save_hf MODEL FOLDER - write any model that can be read as a Hugging Face folder in float32.
 */
#include <stdio.h>

#include "formats/format.h"
#include "tests/lib/write_model.h"

int
main(int argc, char **argv)
{
	struct kv_model m = { 0 };
	struct kv_err e = { 0 };
	int rc;

	if (argc != 3)
		return 2;
	if ((rc = kv_model_open(&m, argv[1], true, &e)) == KV_OK)
		rc = write_hf(&m, KVK_F32, 1, argv[2], &e);
	if (rc < 0)
		fprintf(stderr, "save_hf: %s\n", e.text);
	kv_model_fini(&m);
	return rc < 0;
}
