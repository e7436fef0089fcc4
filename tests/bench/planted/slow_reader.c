/* Have reads from TCP connections take as long as SLOW_READER_BYTES_S allows: a receiver that does not keep up.
   For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t slowly(int fd, ssize_t got) {
  int domain = 0;
  socklen_t length = sizeof domain;
  const char *rate = getenv("SLOW_READER_BYTES_S");
  if (rate && got >= 4096 && !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) && domain == AF_INET)
    usleep((useconds_t)(1e6 * (double)got / atof(rate)));
  return got;
}

ssize_t read(int fd, void *data, size_t size) {
  static ssize_t (*real)(int, void *, size_t);
  if (!real) real = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
  return slowly(fd, real(fd, data, size));
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
  static ssize_t (*real)(int, void *, size_t, int);
  if (!real) real = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
  return slowly(fd, real(fd, data, size, flags));
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "readv");
  return slowly(fd, real(fd, parts, count));
}
