/* Have reads of 4 kB or more from TCP connections wait first: a receiver that does not keep up. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void wait_first(int fd, size_t size) {
  int domain = 0;
  socklen_t length = sizeof domain;
  const char *text = getenv("SLOW_READER_US");
  if (text && size >= 4096 && !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) && domain == AF_INET)
    usleep((useconds_t)atoi(text));
}

ssize_t read(int fd, void *data, size_t size) {
  static ssize_t (*real)(int, void *, size_t);
  if (!real) real = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
  wait_first(fd, size);
  return real(fd, data, size);
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
  static ssize_t (*real)(int, void *, size_t, int);
  if (!real) real = (ssize_t(*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
  wait_first(fd, size);
  return real(fd, data, size, flags);
}

ssize_t readv(int fd, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "readv");
  size_t size = 0;
  for (int part = 0; part < count; part++) size += parts[part].iov_len;
  wait_first(fd, size);
  return real(fd, parts, count);
}
