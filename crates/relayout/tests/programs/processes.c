/* Threads, fork, vfork and exec of itself, signal handlers: every kind of first touch that a tracer has to follow. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define HERE __attribute__((noinline, noipa))
static volatile int sink;
HERE void only_in_child(void) { sink = 1; }
HERE void only_in_thread(void) { sink = 2; }
HERE void only_in_handler(void) { sink = 3; }
HERE void only_after_exec(void) { sink = 4; }
HERE void everywhere(void) { sink = 5; }
HERE void never_called(void) { sink = 6; }
static void *thread(void *p) { everywhere(); only_in_thread(); return p; }
static void handler(int sig) { (void)sig; only_in_handler(); }

int main(int argc, char **argv) {
  (void)argv;
  if (argc > 1) { only_after_exec(); return 9; }
  if (argc > 7) never_called();
  signal(SIGUSR1, handler);
  raise(SIGUSR1);
  raise(SIGTRAP - SIGTRAP + SIGCONT);
  pthread_t t[8];
  for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, thread, NULL);
  for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
  pid_t child = fork();
  if (child == 0) { everywhere(); only_in_child(); _exit(3); }
  int status; waitpid(child, &status, 0);
  int code = WEXITSTATUS(status);
  pid_t quick = vfork();
  if (quick == 0) { execl("/proc/self/exe", "self", "again", (char *)0); _exit(1); }
  waitpid(quick, &status, 0);
  everywhere();
  return code * 10 + WEXITSTATUS(status);
}
