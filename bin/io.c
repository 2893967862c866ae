/* SPDX-License-Identifier: MIT
 * Inputs, output, device and the exit status. */
#include "bin/command.h"

#include <signal.h>
#include <string.h>

void
kv_unmet(const char *option, int n, const char *name)
{
	kv_warn("--%s %.*s: no tensor had that name", option, n, name);
}

void
kv_start(struct kv_io *io, char *const *files, bool no_output, const char *uses, const char *keeps,
    const char *partly, const char *on_device)
{
	struct kv_pipe_options o = {
		.files = files,
		.output = kv_common.output,
		.no_output = no_output,
		.only = kv_common.only,
		.drop = kv_common.drop,
		.unmet = kv_unmet,
		.uses = uses,
		.keeps = keeps,
		.partly = partly,
		.on_device = on_device,
		.share = kv_common.share,
	};

	*io = (struct kv_io){ 0 };
	kv_device_plan(&io->device, kv_common.device, kv_common.threads);
	io->device.precision = kv_common.precision;
	io->device.unfit = kv_unfit;
	io->entry = kv_history();
	if (io->entry == NULL) {
		io->status = kv_no_memory(&io->err, sizeof *io->entry);
		return;
	}
	o.device = &io->device;
	o.entry = io->entry;
	io->status = kv_pipe_open(&io->pipe, &o, &io->err);
}

int
kv_next(struct kv_io *io, struct kv_step **step)
{
	if (io->status == KV_OK)
		io->status = kv_pipe_next(io->pipe, step, &io->err);
	return io->status;
}

int
kv_hold(struct kv_io *io, struct kv_step **steps, size_t *n)
{
	if (io->status == KV_OK)
		io->status = kv_pipe_hold(io->pipe, steps, n, &io->err);
	return io->status;
}

int
kv_finish(struct kv_io *io, int rc)
{
	if (rc >= 0 && io->status < 0)
		rc = io->status;
	if (rc > 0)
		rc = KV_OK;
	if (io->pipe != NULL) {
		struct kv_err e = io->err;
		int closed = kv_pipe_finish(io->pipe, rc, &io->err);

		if (rc < 0)
			io->err = e; /* the first fault is the one to tell */
		else
			rc = closed;
	}
	io->pipe = NULL;
	json_decref(io->entry);
	kv_close_device(&io->device);
	return kv_report(rc, &io->err);
}

void
kv_unfit(const char *why)
{
	kv_warn("%s; the CPU computes instead", why);
}

void
kv_close_device(struct kv_device *d)
{
	if (d->op != NULL)
		kv_note("device: %s%s%s", d->op->name, d->fallback[0] != '\0' ? ", for want of " : "", d->fallback);
	kv_device_close(d);
}

int
kv_report(int rc, const struct kv_err *e)
{
	kv_progress_end();
	if (rc >= 0)
		return KV_EXIT_OK;
	if (rc == KV_EPIPE) {
		/* end as any Unix program does when its reader has gone */
		signal(SIGPIPE, SIG_DFL);
		raise(SIGPIPE);
	} else
		kv_complain("%s%s", e->code != 0 ? e->text : "failed",
		    e->device != NULL && strstr(e->text, "--device cpu") == NULL ? ": use --device cpu" : "");
	return KV_EXIT_FAILED;
}
