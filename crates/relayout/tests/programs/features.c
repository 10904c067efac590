/* What clones must not break in C: setjmp, signal handlers, threads, function pointer equality, computed goto, tail calls,
 * recursion, callbacks from libraries, variadic functions, large switches. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*op)(int, int);
int add(int a, int b) { return a + b; }
int sub(int a, int b) { return a - b; }
static int mul(int a, int b) { return a * b; }
static op table[] = {add, sub, mul};
static const char *name(op f) { return f == add ? "add" : f == sub ? "sub" : f == mul ? "mul" : "?"; }
op pick(int i);
op pick(int i) { return i == 0 ? add : i == 1 ? sub : mul; }

int classify(int c) {
  switch (c) {
  case 0: return 17; case 1: return 4; case 2: return 99; case 3: return c * 7; case 4: return -1;
  case 5: return puts("five"); case 6: return 3; case 7: return c + classify(c - 1); case 8: return 12; case 9: return 31;
  default: return c;
  }
}

static int interpret(const unsigned char *code) {
  static void *labels[] = {&&push, &&plus, &&twice, &&stop};
  int stack[8], top = 0;
  goto *labels[*code++];
push: stack[top++] = *code++; goto *labels[*code++];
plus: top--; stack[top - 1] += stack[top]; goto *labels[*code++];
twice: stack[top - 1] *= 2; goto *labels[*code++];
stop: return stack[top - 1];
}

static jmp_buf env;
static void deep(int n) { if (n == 0) longjmp(env, 42); deep(n - 1); printf("never\n"); }

static volatile sig_atomic_t seen;
static void on_signal(int sig) { seen = sig; }
static void on_fault(int sig) { (void)sig; siglongjmp(env, 7); }

static void *worker(void *arg) {
  long sum = 0;
  for (long i = 0; i < 10000; i++) sum += table[i % 3]((int)i, (int)(long)arg);
  return (void *)sum;
}

static int by_value(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int sum_of(int n, ...) { va_list l; int s = 0; va_start(l, n); while (n--) s += va_arg(l, int); va_end(l); return s; }
static int even(unsigned n); static int odd(unsigned n) { return n == 0 ? 0 : even(n - 1); }
static int even(unsigned n) { return n == 0 ? 1 : odd(n - 1); }
static void at_end(void) { printf("at exit\n"); fflush(stdout); }
__attribute__((constructor)) static void early(void) { printf("constructor\n"); }
__attribute__((destructor)) static void late(void) { printf("destructor\n"); }

int main(int argc, char **argv) {
  fflush(stdout);
  atexit(at_end);
  for (int i = 0; i < 3; i++) printf("%s %s %d\n", name(table[i]), name(pick(i)), table[i] == pick(i));
  for (int i = -1; i < 12; i++) printf("%d ", classify(i));
  printf("\n%d\n", interpret((const unsigned char[]){0, 20, 0, 1, 1, 2, 3}));
  int got = setjmp(env);
  if (got == 0) deep(5);
  printf("longjmp %d\n", got);
  signal(SIGUSR1, on_signal); raise(SIGUSR1); printf("signal %d\n", seen == SIGUSR1);
  struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
  sigaction(SIGSEGV, &fault, NULL);
  got = sigsetjmp(env, 1);
  if (got == 0) *(volatile int *)0 = 1;
  printf("fault %d\n", got);
  pthread_t threads[4]; void *result; long total = 0;
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
  for (int i = 0; i < 4; i++) { pthread_join(threads[i], &result); total += (long)result; }
  printf("threads %ld\n", total);
  int values[] = {5, 3, 9, 1}; qsort(values, 4, sizeof *values, by_value);
  printf("%d%d%d%d %d %d\n", values[0], values[1], values[2], values[3], sum_of(3, 1, 2, 3), even(100001));
  if (argc > 1 && strcmp(argv[1], "abort") == 0) abort();
  return argc > 1 ? atoi(argv[1]) : 0;
}
