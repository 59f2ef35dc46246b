/* Monotonic time in seconds. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
double clock_now(void);
#endif
