/* A small program around SQLite: runs each argument as SQL on a database in memory and prints the rows. */
#include <stdio.h>
#include "sqlite3.h"

static int row(void *unused, int columns, char **values, char **names) {
    (void)unused, (void)names;
    for (int i = 0; i < columns; i++) printf("%s%c", values[i] ? values[i] : "", i + 1 < columns ? '|' : '\n');
    return 0;
}

int main(int argc, char **argv) {
    sqlite3 *db;
    char *error = 0;
    if (sqlite3_open(":memory:", &db)) return 2;
    for (int i = 1; i < argc; i++) {
        if (sqlite3_exec(db, argv[i], row, 0, &error)) {
            fprintf(stderr, "%s\n", error);
            return 1;
        }
    }
    return sqlite3_close(db) != SQLITE_OK;
}
