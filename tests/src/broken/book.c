/* A program whose pages are its data: it reads the page that it is told to read. See book.rs. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

asm(".section .rodata\n.balign 4096\n.globl book\nbook: .incbin \"book.bin\"\n.previous");
extern const unsigned char book[];

/* FNV-1a of a page. */
static uint64_t sum(long page) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < 4096; i++)
        hash = (hash ^ book[page * 4096 + i]) * 0x100000001b3u;
    return hash;
}

static void read_page(const char *who, long page) {
    printf("%s%ld %016lx\n", who, page, (unsigned long)sum(page));
}

/* A child that does what it is told, and waits for ever when nobody tells it anything any more. */
static void child(int orders) {
    FILE *in = fdopen(orders, "r");
    char line[64];
    long page;
    printf("child %d\n", (int)getpid());
    while (fgets(line, sizeof line, in))
        if (sscanf(line, "child page %ld", &page) == 1)
            read_page("child ", page);
    for (;;)
        pause();
}

int main(void) {
    char line[64];
    long page, last;
    int orders = -1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "pages %ld %ld", &page, &last) == 2) {
            for (; page < last; page++)
                read_page("", page);
        } else if (sscanf(line, "page %ld", &page) == 1) {
            read_page("", page);
        } else if (sscanf(line, "pipe %ld", &page) == 1) {
            /* The kernel reads the page. */
            int ends[2];
            if (pipe(ends))
                return 99;
            ssize_t wrote = write(ends[1], book + page * 4096, 4096);
            printf("pipe %zd %s\n", wrote, wrote < 0 ? strerror(errno) : "fine");
        } else if (!strncmp(line, "fork", 4)) {
            int ends[2];
            if (pipe(ends))
                return 99;
            if (fork() == 0) {
                close(ends[1]);
                child(ends[0]);
            }
            orders = ends[1];
        } else if (!strncmp(line, "child", 5)) {
            if (write(orders, line, strlen(line)) < 0)
                return 99;
        } else if (!strncmp(line, "ignore", 6)) {
            signal(SIGBUS, SIG_IGN);
            puts("ignored");
        } else if (sscanf(line, "exit %ld", &page) == 1) {
            return (int)page;
        }
    }
    return 0;
}
