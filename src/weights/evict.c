/* The eviction policies by name. Pure. */
#include "evict.h"

#include <stddef.h>
#include <string.h>

const struct evict_policy *evict_find(const char *name)
{
    static const struct evict_policy *const all[] = {&evict_decay, &evict_lru};

    if (!name)
        return all[0];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}
