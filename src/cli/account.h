/* The account of a run: what was spent between two statistics of an engine, one row of it per token
 * (--csv), and how the time was divided. One thread. */
#ifndef CLI_ACCOUNT_H
#define CLI_ACCOUNT_H

#include "cli.h"
#include "result_file.h"

/* sum += z - a for what is counted; peaks and what is held are taken from z. */
void stats_add(struct leat_stats *sum, const struct leat_stats *a, const struct leat_stats *z);
double stats_other_seconds(const struct leat_stats *s, double elapsed_s); /* never below 0 */
double stats_lanes(const struct leat_stats *s); /* in use while reads were in flight; 0: no reads */

/* Bytes per second that the drive gave while reads were in flight. 0, and *why, where that was not
 * measured. */
double stats_drive_rate(const struct leat_stats *s, const char **why);
/* The same while a read was outstanding that the compute waited for; 0: there was none. */
double stats_urgent_rate(const struct leat_stats *s);
/* The rate that the probe gave to reads as this engine's go: direct or buffered. */
const struct leat_drive_rate *drive_probed(const struct leat_drive *d, const struct leat_stats *s);
/* "2.41 GB/s probed, 2.20 GB/s reached (91 %)", or what of it was not measured. d NULL: not
 * probed. */
const char *drive_text(const struct leat_drive *d, const struct leat_stats *s, char *dst,
                       size_t cap);
json_t *drive_json(const struct leat_drive *d, const struct leat_stats *s);

/* A bar of 80 columns at most, and its shares in words; two lines for standard output. */
#define TIME_BAR_HEAD "# computing  = waiting for reads  s sampling  . other"
void time_bar(char *dst, size_t cap, const struct leat_stats *s, double elapsed_s, int columns);

struct account_csv {
    struct result_file file;
    const struct leat_engine *engine;
    struct leat_stats last;
    double last_s;
    int32_t measure, run, token;
    int64_t rows;
};
/* path NULL: nothing is written. */
int account_csv_open(struct account_csv *c, const char *path, struct leat_error *e);
/* A generation begins: its tokens are numbered from 0, and what came before is not theirs. */
void account_csv_begin(struct account_csv *c, const struct leat_engine *g, int32_t measure,
                       int32_t run);
bool account_csv_token(struct account_csv *c, int32_t id); /* false: writing failed */
/* Rows stand also when the run was cancelled or failed after the first of them. */
int account_csv_close(struct account_csv *c, int code, struct leat_error *e);

#endif
