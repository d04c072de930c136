/*
 * Preloaded beside the runtime of AddressSanitizer, and linked to be
 * initialized first: it starts the runtime.  Otherwise the first malloc() of
 * some other library's constructor does, and that can hold locks of libc that
 * the start takes as well (libp11-kit, loaded by PostgreSQL, does).
 */
extern void __asan_init(void);

static void start(void) __attribute__((constructor));

static void
start(void)
{
	__asan_init();
}
