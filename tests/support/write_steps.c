/* Counts what a process writes below a folder, call by call, and kills it after one of the calls.
 *
 * Loaded with LD_PRELOAD, so that the writes of every library are seen: of Python, of PyTorch's C++,
 * of safetensors' Rust, of Arrow's file systems. `arm` starts the count in the calling process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX];
static long count, fatal;
static int log_file = -1;
static pid_t armed;

void arm(const char *folder, long step, int log) {
    strncpy(root, folder, sizeof root - 1);
    count = 0, fatal = step, log_file = log, armed = getpid();
}

/* The function of the same name that the process would have called. */
#define NEXT(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

/* Whether a path is the folder, or in it. */
static int below(const char *path) {
    size_t size = strlen(root);
    return armed && armed == getpid() && !strncmp(path, root, size) && (!path[size] || path[size] == '/');
}

static void done(const char *operation, const char *path) {
    char line[PATH_MAX + 32];
    const char *name = path[strlen(root)] ? path + strlen(root) + 1 : ".";
    int size = snprintf(line, sizeof line, "%s %s\n", operation, name);
    NEXT(ssize_t, "write", int, const void *, size_t)(log_file, line, size);
    if (__sync_add_and_fetch(&count, 1) == fatal) kill(armed, SIGKILL);
}

static const char *of_descriptor(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = armed == getpid() ? readlink(link, path, PATH_MAX - 1) : 0;
    path[size > 0 ? size : 0] = 0;
    return path;
}

static const char *in_folder(int folder, const char *name, char *path) {
    if (name[0] == '/' || folder == AT_FDCWD) return name;
    of_descriptor(folder, path);
    strncat(path, "/", PATH_MAX - strlen(path) - 1);
    return strncat(path, name, PATH_MAX - strlen(path) - 1);
}

static int creates(int flags) { return flags & (O_CREAT | O_TRUNC); }

#define MODE(flags) mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list a; va_start(a, flags); mode = va_arg(a, int); va_end(a); }

#define OPEN(name) int name(const char *file, int flags, ...) { \
    MODE(flags) \
    int result = NEXT(int, #name, const char *, int, mode_t)(file, flags, mode); \
    if (result >= 0 && creates(flags) && below(file)) done("open", file); \
    return result; }
OPEN(open)
OPEN(open64)

#define OPENAT(name) int name(int folder, const char *file, int flags, ...) { \
    char path[PATH_MAX]; \
    MODE(flags) \
    int result = NEXT(int, #name, int, const char *, int, mode_t)(folder, file, flags, mode); \
    if (result >= 0 && creates(flags) && below(file = in_folder(folder, file, path))) done("open", file); \
    return result; }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name) FILE *name(const char *file, const char *mode) { \
    FILE *result = NEXT(FILE *, #name, const char *, const char *)(file, mode); \
    if (result && mode[0] != 'r' && below(file)) done("open", file); \
    return result; }
FOPEN(fopen)
FOPEN(fopen64)

/* The fatal one writes half of its bytes: a torn file. */
static size_t part(int file, size_t size, const char *path) {
    return below(path) && count + 1 == fatal ? size / 2 : size;
}

#define WRITE(name, ...) ssize_t name(int file, const void *data, size_t size __VA_OPT__(, off_t at)) { \
    char path[PATH_MAX]; \
    of_descriptor(file, path); \
    size = part(file, size, path); \
    ssize_t result = NEXT(ssize_t, #name, int, const void *, size_t __VA_OPT__(, off_t)) \
        (file, data, size __VA_OPT__(, at)); \
    if (below(path)) done("write", path); \
    return result; }
WRITE(write)
WRITE(pwrite, at)
WRITE(pwrite64, at)

ssize_t writev(int file, const struct iovec *parts, int number) {
    char path[PATH_MAX];
    ssize_t result = NEXT(ssize_t, "writev", int, const struct iovec *, int)(file, parts, number);
    if (below(of_descriptor(file, path))) done("write", path);
    return result;
}

#define COPY(name) ssize_t name(int to, int from, off_t *at, size_t size) { \
    char path[PATH_MAX]; \
    ssize_t result = NEXT(ssize_t, #name, int, int, off_t *, size_t)(to, from, at, size); \
    if (below(of_descriptor(to, path))) done("write", path); \
    return result; }
COPY(sendfile)
COPY(sendfile64)

ssize_t copy_file_range(int from, off_t *at, int to, off_t *to_at, size_t size, unsigned flags) {
    char path[PATH_MAX];
    ssize_t result = NEXT(ssize_t, "copy_file_range", int, off_t *, int, off_t *, size_t, unsigned)
        (from, at, to, to_at, size, flags);
    if (below(of_descriptor(to, path))) done("write", path);
    return result;
}

#define CHANGE(name, operation, parameters, arguments, file) int name parameters { \
    char path[PATH_MAX]; (void)path; \
    int result = ((int(*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
    const char *changed = file; \
    if (!result && below(changed)) done(operation, changed); \
    return result; }
CHANGE(ftruncate, "truncate", (int f, off_t n), (f, n), of_descriptor(f, path))
CHANGE(ftruncate64, "truncate", (int f, off_t n), (f, n), of_descriptor(f, path))
CHANGE(truncate, "truncate", (const char *f, off_t n), (f, n), f)
CHANGE(truncate64, "truncate", (const char *f, off_t n), (f, n), f)
CHANGE(unlink, "unlink", (const char *f), (f), f)
CHANGE(rmdir, "rmdir", (const char *f), (f), f)
CHANGE(remove, "unlink", (const char *f), (f), f)
CHANGE(mkdir, "mkdir", (const char *f, mode_t m), (f, m), f)
CHANGE(unlinkat, "unlink", (int d, const char *f, int g), (d, f, g), in_folder(d, f, path))
CHANGE(mkdirat, "mkdir", (int d, const char *f, mode_t m), (d, f, m), in_folder(d, f, path))
CHANGE(rename, "rename", (const char *f, const char *t), (f, t), t)
CHANGE(renameat, "rename", (int d, const char *f, int e, const char *t), (d, f, e, t), in_folder(e, t, path))
CHANGE(renameat2, "rename", (int d, const char *f, int e, const char *t, unsigned g), (d, f, e, t, g), in_folder(e, t, path))
CHANGE(link, "link", (const char *f, const char *t), (f, t), t)
CHANGE(symlink, "link", (const char *f, const char *t), (f, t), t)
